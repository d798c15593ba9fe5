"""Latency and throughput of several ways to run the same program, taking turns."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Run = Callable[[], Awaitable[None]]
"""Runs the program once."""

_ROUNDS = 4
"""So that what else the machine does meets all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One way, with so many clients that each run one program after another."""

    way: str
    clients: int
    programs: int
    median_seconds: float
    p99_seconds: float
    """99 % took no longer; of fewer than 100 programs, the longest."""
    programs_per_second: float


async def measure(ways: Mapping[str, Run], clients: Sequence[int], seconds: float) -> list[Measurement]:
    """Each way with each number of clients, for `seconds` in all of its rounds together."""
    found: dict[tuple[str, int], tuple[list[float], list[float]]] = {
        (way, count): ([], []) for count in clients for way in ways
    }
    for run in ways.values():
        await asyncio.gather(*(run() for _ in range(max(clients))))
    for _ in range(_ROUNDS):
        for (way, count), (latencies, rounds) in found.items():
            started = time.perf_counter()
            until = started + seconds / _ROUNDS
            lists = await asyncio.gather(*(_client(ways[way], until) for _ in range(count)))
            rounds.append(time.perf_counter() - started)
            latencies += [latency for of_one in lists for latency in of_one]
    return [_measurement(way, count, *lists) for (way, count), lists in found.items()]


async def _client(run: Run, until: float) -> list[float]:
    latencies = []
    while (started := time.perf_counter()) < until:
        await run()
        latencies.append(time.perf_counter() - started)
    return latencies


def _measurement(way: str, clients: int, latencies: list[float], rounds: list[float]) -> Measurement:
    ordered = sorted(latencies)
    return Measurement(
        way=way,
        clients=clients,
        programs=len(ordered),
        median_seconds=statistics.median(ordered),
        p99_seconds=ordered[-(-99 * len(ordered) // 100) - 1],
        programs_per_second=len(ordered) / sum(rounds),
    )
