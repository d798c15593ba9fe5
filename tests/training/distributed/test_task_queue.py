"""Two gloo processes take uneven work from one queue, also next to a thread that exchanges values."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.forked import in_two_processes
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.distributed.task_queue import Round, take_turns

PIECES, LONG, SHORT = 8, 0.6, 0.02
FIXED = PIECES / 2 * (LONG - SHORT) / 2
"""Mean idle seconds of two processes with fixed shares of every other piece, of which one gets all long ones:
the other waits for the difference."""


def seconds(number: int) -> float:
    return LONG if number % 2 == 0 else SHORT


async def work(number: int, part_done: Callable[[], None]) -> int:
    await asyncio.sleep(seconds(number))
    part_done()
    return number


def launched(file: Path) -> None:
    """Write the outcome of a round, and what the main thread exchanged."""
    processes = Processes.launched()
    apart = processes.apart()
    found: list[Round[int]] = []

    async def rounds() -> None:
        found.append(await take_turns(PIECES, work, at_once=1, processes=apart))

    thread = threading.Thread(target=lambda: asyncio.run(rounds()))
    thread.start()
    exchanged = [processes.every((processes.rank, number)) for number in range(300)]
    thread.join()
    every = processes.every([[*one.results.items()] for one in found])
    if processes.rank == 0:
        file.write_text(
            json.dumps(
                {
                    "exchanged": exchanged == [[(0, number), (1, number)] for number in range(300)],
                    "same": every[0] == every[1],
                    "results": [[*one.results] for one in found],
                    "idle": [one.idle for one in found],
                }
            )
        )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("queue")
    in_two_processes(launched, folder / "found.json", folder=folder)
    outcome: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return outcome


@pytest.mark.slow
def test_a_fast_process_takes_the_work_of_a_slow_one(found: dict[str, Any]) -> None:
    assert found["results"][0] == list(range(PIECES)), "each piece is done once"
    assert found["idle"][0] < FIXED / 2, "one of two processes waits for at most one long piece"
    assert found["same"]
    assert found["exchanged"], "training exchanges values at the same time"


async def test_an_error_ends_the_rest() -> None:
    ended: list[int] = []

    async def failing(number: int, part_done: Callable[[], None]) -> None:
        try:
            await asyncio.sleep(0 if number == 1 else 60)
        finally:
            ended.append(number)
        raise ValueError(f"piece {number}")

    with pytest.raises(ValueError, match="piece 1"):
        await take_turns(3, failing)
    assert sorted(ended) == [0, 1, 2]
