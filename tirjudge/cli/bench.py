"""`tirjudge sandbox bench`: what one small program costs here, beside what people use instead."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tirjudge.console_text import printable
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_sandbox.bench import contenders, fork
from tirjudge_sandbox.bench.measurement import Measurement, Run, measure

_CLIENTS = (1, 2, 4)


def bench(
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For each way with each number of clients.  [default: 4]")
    ] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure the local sandbox beside `python3 -I`, and docker's beside `docker exec`, taking turns.

    The sandboxes' programs find numpy and sympy loaded; those beside them load nothing. What is not there
    to be measured is named. Exit code 0, also then.
    """
    pairs = [(contenders.LOCAL, contenders.PYTHON), (contenders.DOCKER, contenders.EXEC)]
    found = [measurement for pair in pairs for measurement in asyncio.run(_measured(pair, seconds))]
    bare = fork.seconds()
    if as_json:
        print(json.dumps({"fork_seconds": bare, "measurements": [asdict(one) for one in found]}, indent=2))
    else:
        _show(found, bare)


async def _measured(pair: Sequence[contenders.Contender], seconds: float) -> list[Measurement]:
    """Nothing of a pair where one of it is missing."""
    async with contextlib.AsyncExitStack() as stack:
        ways: dict[str, Run] = {}
        try:
            for contender in pair:
                ways[contender.name] = await stack.enter_async_context(
                    contender.open(contenders.usable_cpus())
                )
        except SandboxUnavailable as error:
            print(f"not measured: {contender.name}: {printable(str(error), limit=300)}", file=sys.stderr)
            return []
        return await measure(ways, _CLIENTS, seconds)


def _show(found: Sequence[Measurement], bare: float | None) -> None:
    load = os.getloadavg()[0]
    title = f"{contenders.SOURCE}, {contenders.usable_cpus()} CPUs, load {load:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("", "clients", "n", "median ms", "99 % ms", "programs/s", "times"):
        table.add_column(column, justify="right" if column else "left")
    for one in found:
        table.add_row(
            one.way,
            str(one.clients),
            str(one.programs),
            f"{one.median_seconds * 1000:.2f}",
            f"{one.p99_seconds * 1000:.2f}",
            f"{one.programs_per_second:.0f}",
            _times(one, found),
        )
    console = Console()
    console.print(table)
    if bare is None:
        console.print("A bare fork was not measured: there is no C compiler.")
    else:
        console.print(f"A bare fork in C: {bare * 1000:.3f} ms.", _above(found, bare))


def _times(one: Measurement, found: Sequence[Measurement]) -> str:
    """How many programs it runs while what it is compared with runs one."""
    beside = next(contender.beside for contender in contenders.ALL if contender.name == one.way)
    for other in found:
        if (other.way, other.clients) == (beside, one.clients):
            return f"{one.programs_per_second / other.programs_per_second:.1f}"
    return ""


def _above(found: Sequence[Measurement], bare: float) -> str:
    local = (one for one in found if (one.way, one.clients) == (contenders.LOCAL.name, 1))
    return "".join(
        f"The local sandbox's median is {one.median_seconds / bare:.1f} times that." for one in local
    )
