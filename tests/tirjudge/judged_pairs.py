"""Build judged pairs (`JudgedRow`) for tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import score

AB, BA = (0, 1), (1, 0)
OUTCOMES = ((0,), (1,), (0, 1), ())


def pair(id: str, *bests: Sequence[int], label: int | None = 0, **fields: object) -> JudgedRow:
    """Return a pair judged in its own order and, given two outcomes, also in the other."""
    votes = tuple(Vote(best=tuple(best), order=order) for best, order in zip(bests, (AB, BA), strict=False))
    return JudgedRow(id=id, votes=votes, label=label, **fields)  # type: ignore[arg-type]


def random_pairs(seed: int, count: int = 60) -> list[JudgedRow]:
    draw = random.Random(seed)
    return [
        pair(
            str(number),
            draw.choice(OUTCOMES),
            draw.choice(OUTCOMES),
            label=draw.choice((0, 1)),
            domain=draw.choice("xyz"),
        )
        for number in range(count)
    ]


def figures(name: str, rows: Iterable[JudgedRow]) -> dict[str, float]:
    scored = score(open_protocol(name), rows, resamples=10)
    return {name: estimate.value for name, estimate in scored.estimates.items()}


def sampled(id: str, *bests: Sequence[int], scores: Sequence[dict[int, float]] = ()) -> JudgedRow:
    votes = tuple(
        Vote(best=tuple(best), order=AB, sample=number, scores=scores[number] if scores else {})
        for number, best in enumerate(bests)
    )
    return JudgedRow(id=id, votes=votes, label=0)
