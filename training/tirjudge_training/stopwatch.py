"""Where the time of an RL step goes."""

from __future__ import annotations

import time
from collections.abc import Mapping


class Stopwatch:
    """Starts when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Seconds, and CPU seconds of this process, since the start; to the millisecond."""
        return round(time.perf_counter() - self._wall, 3), round(time.process_time() - self._cpu, 3)


def shares_of_time(seconds: Mapping[str, float]) -> dict[str, float]:
    """Of a step's wall time: computing tokens, waiting for programs alone, and training.

    Programs run while others generate: only what is left of the rollouts counts as theirs, and no more than
    the programs took. The rest, scoring and bookkeeping, is in none of the three.
    """
    rollout, train = seconds["seconds/rollout"], seconds["seconds/train"]
    generating = min(seconds["seconds/generating"], rollout)
    waiting = min(rollout - generating, seconds["seconds/programs"])
    whole = max(rollout + train, 1e-9)
    return {
        "share/generation": generating / whole,
        "share/sandbox": waiting / whole,
        "share/training": train / whole,
    }
