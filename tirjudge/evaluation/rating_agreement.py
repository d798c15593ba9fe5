"""Agreement of the judge's scores of single responses with people: with ratings, and with pass or fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tirjudge.evaluation.protocols.ratings import on_scale, scale_of
from tirjudge.evaluation.runs import score_record, score_run
from tirjudge.evaluation.scoring import Estimate, ProtocolScore
from tirjudge.evaluation.stored_outputs.reading import open_results
from tirjudge.evaluation.stored_outputs.tirjudge_results import score_range
from tirjudge.records.result_row import ResultRow, read_result_rows

FAR = 0.25
"""Share of people's scale from which a score is far from the rating."""
_SHOWN = ("Spearman", "quadratic kappa", "judge minus people")


@dataclass(frozen=True, slots=True)
class RatingAgreement:
    """The scores of a run under the protocols `kappa` and `ratings`, as far as they fit."""

    scores: Sequence[ProtocolScore]

    @classmethod
    def of(cls, results: Path, *, classes: bool, numbers: bool) -> RatingAgreement:
        """Score a result file of which some rows have a class, or a number, as the label."""
        names = ["kappa"] * classes + ["ratings"] * numbers
        found, _ = score_run(open_results(results), names, "", seed=0)
        return cls([one.score for one in found])

    @property
    def correlation(self) -> Estimate | None:
        """Spearman's rank correlation with people's ratings; None without ratings."""
        found = (one.estimates.get("Spearman") for one in self.scores if one.card.name == "ratings")
        return next((one for one in found if one is not None), None)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield a heading and a text for each protocol."""
        for one in self.scores:
            if one.card.name == "kappa":
                kappa = one.estimates["judge and label"].printed(".2f")
                yield "kappa", f"{kappa} is Cohen's, of pass and fail"
                continue
            known = [(name, one.estimates[name]) for name in _SHOWN if name in one.estimates]
            if known:
                texts = ", ".join(f"{name} {found.printed('.2f')}" for name, found in known)
                yield "ratings", f"{texts}, n = {known[0][1].n}, protocol ratings"

    def record(self) -> dict[str, Any]:
        """Return the scores as JSON values, by protocol."""
        return {one.card.name: score_record(one) for one in self.scores}


def far_from_rating(results: Sequence[Path]) -> Callable[[ResultRow], bool]:
    """Return a function that tells rows whose score is far from people's rating.

    The score is moved to people's scale, which is known by all ratings of the files. Pass and fail are no
    ratings.
    """
    rows = (row for row, _ in chain.from_iterable(map(read_result_rows, results)))
    scale = scale_of(np.array([row.rating for row in rows if _is_number(row.rating)], dtype=np.float64))

    def is_far(row: ResultRow) -> bool:
        score = (row.scores or [None])[0]
        if not _is_number(row.rating):
            return False
        if score is None:
            return True
        low, high = score_range(row.format, criteria=bool(row.criteria)) or (math.nan, math.nan)
        moved = on_scale(np.array([score]), np.array([low]), np.array([high]), scale)
        return abs(float(moved[0]) - float(row.rating or 0)) > FAR * (scale[1] - scale[0])

    return is_far


def _is_number(rating: bool | float | None) -> bool:
    return rating is not None and not isinstance(rating, bool)
