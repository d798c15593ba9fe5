"""What no way to run a program can undercut: a bare fork in C, its output through a pipe."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = r"""
#include <stdio.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    enum { FORKS = 2000 };
    char output[16];
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < FORKS; i++) {
        int ends[2];
        if (pipe(ends)) return 1;
        pid_t child = fork();
        if (child < 0) return 1;
        if (!child) _exit(write(ends[1], "499500\n", 7) != 7);
        close(ends[1]);
        while (read(ends[0], output, sizeof output) > 0) {}
        close(ends[0]);
        waitpid(child, NULL, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.9f\n", ((to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9) / FORKS);
    return 0;
}
"""


def seconds() -> float | None:
    """Mean of 2,000; None without a C compiler. Raises subprocess.CalledProcessError if it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tirjudge-") as folder:
        binary = Path(folder, "fork")
        command = [compiler, "-O2", "-x", "c", "-", "-o", str(binary)]
        subprocess.run(command, input=_SOURCE, text=True, capture_output=True, check=True)
        return float(subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout)
