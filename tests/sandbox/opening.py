"""Open a local sandbox and print the outcome of each program: `python opening.py OPTIONS PROGRAM...`

OPTIONS is a JSON object. Prints the placement with what it misses, the notes, and a line for each program.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tirjudge_sandbox import Execution, Limits, Program, SandboxUnavailable
from tirjudge_sandbox.local import LocalSandbox

LIMITS = Limits(wall_seconds=2, cpu_seconds=1, processes=3)


async def main() -> None:
    options, *programs = sys.argv[1:]
    try:
        async with LocalSandbox(capacity=1, preload=(), **json.loads(options)) as box:
            isolation = (await box.run(Program(source=""))).isolation
            print(isolation.placement, *isolation.missing)
            print(*isolation.notes, sep="; ")
            for source in programs:
                print(_words(await box.run(Program(source=source, files={"given": b"given"}), LIMITS)))
    except SandboxUnavailable as error:
        print(error)


def _words(ran: Execution) -> str:
    said = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
    return " ".join(str(word) for word in (ran.status, ran.signal, *said) if word is not None).split(":")[0]


if __name__ == "__main__":
    asyncio.run(main())
