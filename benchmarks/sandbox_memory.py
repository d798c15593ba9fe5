"""The most memory that hostile programs hold, with the kernel's, in every placement of this machine.

    python -m benchmarks.sandbox_memory [--placements root docker ...] [--json]

Needs root and control groups of version 1. A host with one worker runs each attack, in a control group in
which the kernel counts all memory of host, worker and program; of a container, its own group counts. The
figure is the group's peak less its use before the attack, in MiB. Attacks have `memory_bytes` and
`disk_bytes` of 16 MiB and four further processes, where the placement allows any. The group ends what grows
beyond 2 GiB, which is shown as such. To measure another version of the sandbox, set PYTHONPATH to its folder
`sandbox`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tirjudge_sandbox import Limits, Program, open_sandbox

MIB = 1 << 20
LIMITS = Limits(memory_bytes=16 * MIB, disk_bytes=16 * MIB, processes=4, wall_seconds=25, cpu_seconds=15)
MOST = 2048 * MIB

_ROOT = Path("/sys/fs/cgroup/memory")
_REPOSITORY = Path(__file__).resolve().parents[1]
_NOBODY = 65534
EVERYWHERE = """
import os, sys, time
for _ in range(4):
    try:
        if os.fork() == 0:
            break
    except OSError:
        break
held = []
"""
"""The start of an attack: as many processes as are allowed, of which each continues."""
_HOLD = "\ntime.sleep(2)\n"

ATTACKS = {
    "objects": """
try:
    while True: held.append(bytearray(1 << 16))
except MemoryError: pass
""",
    "page tables": """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for number in range(1, 65000):
    # A page in each GiB needs two pages of tables. Private, anonymous, and only where nothing is yet.
    at = libc.mmap(ctypes.c_void_p(number << 30), ctypes.c_size_t(4096), 3, 0x100022, -1, ctypes.c_long(0))
    if at == (1 << 64) - 1: break
    ctypes.memset(at, 1, 1)
""",
    "files": """
for number in range(4000):
    try: open('x' * 200 + f'-{os.getpid()}-{number}', 'wb').write(bytes(1 << 14))
    except OSError: break
""",
    "sockets": """
import socket
try:
    while True:
        pair = socket.socketpair()
        held.append(pair)
        try: pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        except OSError: pass
        for end in pair:
            end.setblocking(False)
            try:
                while True: end.send(bytes(1 << 16))
            except BlockingIOError: pass
except OSError: pass
""",
    "pipes": """
import fcntl
try:
    while True:
        ends = os.pipe()
        held.append(ends)
        os.set_blocking(ends[1], False)
        try: fcntl.fcntl(ends[1], 1031, 1 << 20)
        except OSError: pass
        try:
            while True: os.write(ends[1], bytes(1 << 16))
        except BlockingIOError: pass
except OSError: pass
""",
    "descriptors in flight": """
import array, socket
def sent():
    a, b = socket.socketpair()
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    try:
        while True: os.write(ends[1], bytes(1 << 16))
    except BlockingIOError: pass
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [*ends, b.fileno()]))])
    for one in ends: os.close(one)
    b.close()
    held.append(a)
try:
    for _ in range(4000): sent()
except OSError: pass
""",
    "names that do not exist": """
until = time.monotonic() + 8
while time.monotonic() < until:
    held = [None]
    for number in range(1000):
        try: os.stat(f'/usr/lib/{os.getpid()}-{time.monotonic_ns()}-{number}')
        except OSError: pass
""",
}


@dataclass(frozen=True, slots=True)
class Placement:
    """A way to start a host, and where its programs run."""

    sandbox: str
    options: dict[str, str]
    user: int | None = None
    """None is this user, with its Python as it is; another one, and 0, gets one that all users may read."""
    control_groups: bool = True

    def command(self, attack: str) -> list[str]:
        """Return the command line of a host."""
        ours = [sys.executable, "-m", "benchmarks.sandbox_memory", "--host", self.sandbox]
        ours += [json.dumps(self.options), attack]
        if self.user is not None:
            ours = [sys.executable, "tests/sandbox/unprivileged.py", str(self.user), *ours]
        if not self.control_groups:
            covered = 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$@"'
            ours = ["unshare", "--mount", "sh", "-c", covered, "sh", *ours]
        return ours


PLACEMENTS = {
    "root": Placement("local", {"placement": "root"}),
    "root, no control groups": Placement("local", {"placement": "root"}, control_groups=False),
    "userns": Placement("local", {"placement": "userns"}, _NOBODY),
    "own-uid": Placement("local", {"placement": "own-uid"}, 0),
    "own-uid, no control groups": Placement("local", {"placement": "own-uid"}, 0, control_groups=False),
    "plain": Placement("local", {"placement": "plain"}, _NOBODY),
    "docker": Placement("docker", {}),
}


def main() -> None:
    """Measure all attacks in all placements and print a table, or run as a host."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--placements", nargs="+", choices=PLACEMENTS, default=list(PLACEMENTS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--host", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        asyncio.run(_host(*options.host))
        return
    found = {name: {attack: _peak(name, attack) for attack in ATTACKS} for name in options.placements}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    table = Table("placement", *ATTACKS)
    for name, peaks in found.items():
        table.add_row(name, *map(_shown, peaks.values()))
    Console(width=130).print(table)


def _shown(size: int) -> str:
    return f"over {MOST // MIB}" if size >= MOST - 64 * MIB else str(round(size / MIB))


async def _host(sandbox: str, options: str, attack: str) -> None:
    async with open_sandbox(sandbox, capacity=1, preload=(), **json.loads(options)) as box:
        await box.run(Program(source=""), LIMITS)
        print("ready", flush=True)
        sys.stdin.readline()
        ended = await box.run(Program(source=EVERYWHERE + ATTACKS[attack] + _HOLD), LIMITS)
        print(ended.status, ended.detail, flush=True)


def _peak(name: str, attack: str) -> int:
    """Return the most bytes that an attack held."""
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
    group = _ROOT / own.split(":")[2].lstrip("/") / f"tirjudge-benchmark-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(MOST))
    host = subprocess.Popen(
        PLACEMENTS[name].command(attack),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_REPOSITORY,
        preexec_fn=lambda: (group / "cgroup.procs").write_text("0"),
    )
    assert host.stdin is not None
    assert host.stdout is not None
    if host.stdout.readline() != "ready\n":
        sys.exit(f"{name}: no sandbox")
    counted = _container() if PLACEMENTS[name].sandbox == "docker" else group
    before = int((counted / "memory.usage_in_bytes").read_text())
    (counted / "memory.max_usage_in_bytes").write_text("0")
    host.stdin.write("\n")
    host.stdin.flush()
    peak = before
    while not select.select([host.stdout], [], [], 0.02)[0]:
        # Again and again, since the group of a container goes with the container, which may not survive.
        with contextlib.suppress(FileNotFoundError):
            peak = int((counted / "memory.max_usage_in_bytes").read_text())
    host.communicate()
    _remove(group)
    return peak - before


def _container() -> Path:
    """Return the group of the youngest container of a sandbox."""
    from tirjudge_sandbox.containers import client

    found = client.call(lambda docker: docker.api.containers(filters={"label": client.LABEL}))
    youngest = max(found, key=lambda container: container["Created"])["Id"]
    return next(_ROOT.glob(f"**/{youngest}"))


def _remove(group: Path) -> None:
    for path in (*group.glob("*/"), group):
        for _ in range(100):
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.05)


if __name__ == "__main__":
    main()
