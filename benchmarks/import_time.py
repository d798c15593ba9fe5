"""The time that importing each package takes, each time in a new interpreter.

    python -m benchmarks.import_time [--runs 20]

The first import of each package is not counted, since it may write bytecode. Wall time depends on the load of
the machine, CPU time does not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

PACKAGES = ("tirjudge_sandbox", "tirjudge_environments", "tirjudge", "tirjudge_training")
IMPORT = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {package}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def seconds(package: str) -> tuple[float, float]:
    """Return the wall and CPU seconds of one import."""
    code = IMPORT.format(package=package)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def main() -> int:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20, help="imports per package")
    runs = parser.parse_args().runs
    table = Table("package", "wall s", "CPU s")
    for package in PACKAGES:
        seconds(package)  # may write bytecode, so it is not counted
        walls, cpus = zip(*(seconds(package) for _ in range(runs)), strict=True)
        table.add_row(package, *(f"{statistics.median(one):.3f}" for one in (walls, cpus)))
    Console().print(table)
    print(f"median of {runs}, load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
