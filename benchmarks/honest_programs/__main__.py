"""Run the honest programs and print how many end well in each placement, and which end badly.

    python -m benchmarks.honest_programs [--placement root docker ...] [--capacity 2]

A program ends well if its status is `ok` and it prints what it must. `policy` is the local sandbox with the
default import policy; `python3` is the interpreter without a sandbox, which checks the expected outputs. A
placement that cannot be opened is reported with the reason. As root, `userns` and `plain` need another user,
and `own-uid` an interpreter that others may read:

    python tests/sandbox/unprivileged.py UID PYTHON -m benchmarks.honest_programs --placement userns plain
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.honest_programs import PROGRAMS, Honest
from tirjudge_sandbox import Execution, ImportPolicy, Program, Sandbox, SandboxUnavailable, Status
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.workers.host import PLACEMENTS

PLAIN = "python3"
SECONDS = 60
SANDBOXES: dict[str, Callable[..., Sandbox]] = {
    **{name: partial(LocalSandbox, placement=name) for name in PLACEMENTS},
    "policy": partial(LocalSandbox, import_policy=ImportPolicy()),
    "docker": DockerSandbox,
}


def ended_well(program: Honest, ran: Execution) -> bool:
    """Return True if the program printed what it must and ended by itself with 0."""
    return ran.status is Status.OK and ran.stdout == program.expected


async def executions(box: Sandbox) -> list[Execution]:
    """Run all programs in an open sandbox and return their executions in order."""
    asked = [Program(source=one.source, bindings=one.bindings, stdin=one.stdin) for one in PROGRAMS]
    return await asyncio.gather(*map(box.run, asked))


async def in_sandbox(name: str, capacity: int) -> list[tuple[Honest, Execution]]:
    """Return the programs that end badly in a placement, with their executions."""
    async with SANDBOXES[name](capacity=capacity) as box:
        ran = await executions(box)
    return [(one, its) for one, its in zip(PROGRAMS, ran, strict=True) if not ended_well(one, its)]


def without_sandbox(program: Honest) -> Execution:
    """Run one program by a fresh interpreter, in an empty folder."""
    given = "".join(f"{name} = {value!r}\n" for name, value in program.bindings.items())
    with tempfile.TemporaryDirectory() as folder:
        # In a file, which `multiprocessing` and `inspect` read.
        file, empty = Path(folder, "program.py"), Path(folder, "empty")
        file.write_text(given + program.source)
        empty.mkdir()
        done = subprocess.run(
            [sys.executable, "-s", file],
            input=program.stdin, capture_output=True, text=True, check=False,
            cwd=empty, env={**os.environ, "PYTHONPATH": str(empty)}, timeout=SECONDS,
        )  # fmt: skip
    status = Status.ERROR if done.returncode else Status.OK
    return Execution(status=status, stdout=done.stdout, stderr=done.stderr)


def last_line(ran: Execution) -> str:
    """Return what a program that ended badly says about it."""
    lines = (ran.detail or ran.stderr or repr(ran.stdout)).strip().splitlines()
    return lines[-1][:120] if lines else "no output"


def main() -> None:
    """Run the programs in each placement and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placement", nargs="+", choices=[*SANDBOXES, PLAIN], default=[*SANDBOXES, PLAIN])
    parser.add_argument("--capacity", type=int, default=2, help="programs at once (default: 2)")
    options = parser.parse_args()
    table = Table(title=f"{len(PROGRAMS)} honest programs")
    for column in ("placement", "end well", "end badly"):
        table.add_column(column, justify="left" if column == "placement" else "right")
    notes = []
    for name in options.placement:
        try:
            if name == PLAIN:
                ran = [(one, without_sandbox(one)) for one in PROGRAMS]
                bad = [pair for pair in ran if not ended_well(*pair)]
            else:
                bad = asyncio.run(in_sandbox(name, options.capacity))
        except SandboxUnavailable as error:
            table.add_row(name, "-", "-")
            notes.append(f"{name}: {error}")
            continue
        table.add_row(name, str(len(PROGRAMS) - len(bad)), str(len(bad)))
        notes += [f"{name}: {one.name}: {its.status}: {last_line(its)}" for one, its in bad]
    console = Console(width=160)
    console.print(table)
    for note in notes:
        console.print(note, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
