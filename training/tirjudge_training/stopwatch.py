"""Where the time of a generation batch goes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence


class Laps:
    """The parts of a batch, one after the other; the first begins when this is made."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[float, float]] = {}
        """Name to seconds, and CPU seconds of this process; to the millisecond."""
        self._began = self._now()

    def end(self, part: str) -> None:
        """Of the part that ran until now."""
        began, self._began = self._began, self._now()
        wall, cpu = (round(now - then, 3) for now, then in zip(self._began, began, strict=True))
        self.parts[part] = wall, cpu

    @staticmethod
    def _now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()


def times(every: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """As `metrics.jsonl` has them, from the parts of each process: the first's seconds, all CPU seconds."""
    first = every[0]
    return {
        **{f"seconds/{part}": wall for part, (wall, _) in first.items()},
        "seconds/step": round(sum(wall for wall, _ in first.values()), 3),
        **{f"cpu_seconds/{part}": round(sum(parts[part][1] for parts in every), 3) for part in first},
    }


def shares_of_time(seconds: Mapping[str, float]) -> dict[str, float]:
    """Of a generation batch's wall time: computing tokens, waiting for programs alone, and training.

    Programs run while others generate: only the time counts as theirs in which no token was computed.
    Training is every pass of the trainer's, those for logprobs alone included. The rest is in none of the
    three: giving the sampler new weights, scoring, bookkeeping.
    """
    whole = max(seconds["seconds/step"], 1e-9)
    training = seconds["seconds/logprobs"] + seconds["seconds/train"]
    return {
        "share/generation": seconds["seconds/generating"] / whole,
        "share/sandbox": seconds["seconds/waiting"] / whole,
        "share/training": training / whole,
    }
