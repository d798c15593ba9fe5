"""Latency of short programs alone, and while as many spinning programs as the capacity run.

    python -m benchmarks.sandbox_spinners [--capacity 2] [--spin 5] [--programs 200] [--backend local]

Clients that each send one spinning program after another keep every place taken. One more client sends short
programs, one after another with pauses. Prints the latency of the short ones (queueing and running) at
percentiles, with and without the spinners, and how often it exceeded ten times the median without them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tirjudge_sandbox import Limits, Program, Sandbox, Status, open_sandbox

SHORT = {
    "one line": "print(sum(range(1000)))",
    "a 20th of a second": "import time\nwhile time.process_time() < 0.05: pass",
}
"""Programs by name. CPU time of a program counts from its fork."""
_TIMES = 10
"""The bound on latency, in multiples of the median without spinners."""
_LONGEST_PAUSE = 0.4


def main() -> None:
    """Measure and print a table."""
    options = _options()
    rows = asyncio.run(_measured(options))
    table = Table("short program", "spinners", "n", "p50 s", "p95 s", "p99 s", "max s", f"over {_TIMES}x")
    for name, (alone, behind) in rows.items():
        for spinners, latencies in ((0, alone), (options.capacity, behind)):
            over = sum(latency > _TIMES * statistics.median(alone) for latency in latencies)
            ordered = sorted(latencies)
            shown = [f"{_percentile(ordered, of):.3f}" for of in (50, 95, 99, 100)]
            table.add_row(name, str(spinners), str(len(ordered)), *shown, f"{over / len(ordered):.1%}")
    Console(width=110).print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--capacity", type=int, default=2)
    parser.add_argument("--spin", type=float, default=5.0, help="CPU seconds of a spinning program")
    parser.add_argument("--programs", type=int, default=200, help="short programs of each kind and setting")
    parser.add_argument("--backend", default="local", choices=("local", "docker"))
    return parser.parse_args()


async def _measured(options: argparse.Namespace) -> dict[str, tuple[list[float], list[float]]]:
    pauses = random.Random(0)
    async with open_sandbox(options.backend, capacity=options.capacity) as box:
        rows = {}
        for name, source in SHORT.items():
            alone = await _latencies(box, source, options.programs, pauses)
            spinners = [
                asyncio.ensure_future(_spin(box, f"spinner-{number}", options.spin))
                for number in range(options.capacity)
            ]
            await asyncio.sleep(options.spin / 2)
            behind = await _latencies(box, source, options.programs, pauses)
            for spinner in spinners:
                spinner.cancel()
            await asyncio.wait(spinners)
            rows[name] = alone, behind
    return rows


async def _spin(box: Sandbox, client: str, seconds: float) -> None:
    while True:
        await box.run(
            Program(source="while True: pass", client=client),
            Limits(cpu_seconds=seconds, wall_seconds=10 * seconds),
        )


async def _latencies(box: Sandbox, source: str, count: int, pauses: random.Random) -> list[float]:
    found = []
    for _ in range(count):
        # Random, so that the programs meet the spinners at any moment of their lives.
        await asyncio.sleep(pauses.uniform(0, _LONGEST_PAUSE))
        started = time.perf_counter()
        ran = await box.run(Program(source=source, client="short"))
        assert ran.status is Status.OK, ran
        found.append(time.perf_counter() - started)
    return found


def _percentile(ordered: Sequence[float], of: int) -> float:
    """Return a percentile by the nearest rank."""
    return ordered[max(0, -(-of * len(ordered) // 100) - 1)]


if __name__ == "__main__":
    main()
