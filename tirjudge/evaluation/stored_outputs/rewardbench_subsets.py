"""RewardBench's summaries: accuracy by subset, expanded into the rows that it was computed from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tirjudge.evaluation.base import JudgedRow, SummaryId, Vote
from tirjudge.evaluation.benchmark_labels import REWARDBENCH_ROWS
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable, need_share

_TOLERANCE = 1e-6


class RewardBenchSubsets:
    """Rows are right, wrong or half right in the published proportion; which ones they are is unknown."""

    name = "rewardbench"
    about = "RewardBench's summary of one model: accuracy by subset"
    benchmark = "rewardbench"
    protocols = ("rewardbench", "rewardbench-strict")

    def recognises(self, row: Fields) -> bool:
        return 2 * sum(subset in row for subset in REWARDBENCH_ROWS) > len(REWARDBENCH_ROWS)

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        for subset, size in REWARDBENCH_ROWS.items():
            yield from _rows(subset, size, need_share(row, subset))


REWARDBENCH_SUBSETS = RewardBenchSubsets()


def _rows(subset: str, size: int, accuracy: float) -> Iterator[JudgedRow]:
    halves = round(2 * accuracy * size)
    if abs(halves - 2 * accuracy * size) > _TOLERANCE * size:
        raise Unreadable(f"{subset}: {accuracy} is not an accuracy over {size} rows")
    for number in range(size):
        worth = min(2, max(0, halves - 2 * number))
        best = ((1,), (0, 1), (0,))[worth]
        yield JudgedRow(id=SummaryId(f"{subset}-{number}"), votes=(Vote(best=best),), label=0, domain=subset)
