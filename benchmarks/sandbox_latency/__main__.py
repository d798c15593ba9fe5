"""Compare the local sandbox with `python3 -I`, and the docker sandbox with `docker exec`.

python -m benchmarks.sandbox_latency [--seconds 4] [--json]
"""

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

from benchmarks.sandbox_latency import contenders
from benchmarks.sandbox_latency.measurement import Measurement, Run, fork_seconds, measure
from tirjudge.console_text import printable
from tirjudge_sandbox import SandboxUnavailable

_CLIENTS = (1, 2, 4)


def bench(
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds per contender and number of clients.  [default: 4]")
    ] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure the local sandbox and `python3 -I`, and the docker sandbox and `docker exec`, in alternation.

    Programs in the sandboxes find numpy and sympy loaded; the others load nothing. A pair that is not
    available is named and skipped, with exit code 0.
    """
    pairs = [(contenders.LOCAL, contenders.PYTHON), (contenders.DOCKER, contenders.EXEC)]
    found = [measurement for pair in pairs for measurement in asyncio.run(_measured(pair, seconds))]
    bare = fork_seconds()
    if as_json:
        print(json.dumps({"fork_seconds": bare, "measurements": [asdict(one) for one in found]}, indent=2))
    else:
        _show(found, bare)


async def _measured(pair: Sequence[contenders.Contender], seconds: float) -> list[Measurement]:
    """Measure a pair; return nothing if one of the two is not available."""
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
    """Return the throughput relative to the baseline with the same number of clients."""
    baseline = next(contender.baseline for contender in contenders.ALL if contender.name == one.way)
    for other in found:
        if (other.way, other.clients) == (baseline, one.clients):
            return f"{one.programs_per_second / other.programs_per_second:.1f}"
    return ""


def _above(found: Sequence[Measurement], bare: float) -> str:
    local = (one for one in found if (one.way, one.clients) == (contenders.LOCAL.name, 1))
    return "".join(
        f"The local sandbox's median is {one.median_seconds / bare:.1f} times that." for one in local
    )


if __name__ == "__main__":
    typer.run(bench)
