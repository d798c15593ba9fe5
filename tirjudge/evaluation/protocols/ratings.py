"""Ratings on an ordered scale: agreement, correlation and mean difference of a judge and people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import Figure, Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.raters import (
    LEAST_RATED,
    ORDINAL,
    alpha,
    by_prompt,
    correlation,
    mean_correlation,
    pearson,
    ranked,
    tau,
)
from tirjudge.evaluation.scoring import UnitsBuilder
from tirjudge.statistics.estimators import Fitted, Mean, OfTable, Statistic

Values = NDArray[np.float64]
_MOST_LEVELS = 64
"""Different ratings up to which numbers come from a table of counts; more are bootstrapped."""


class Ratings:
    """Ratings of single responses: the mean of the judge's samples beside the mean of all people."""

    card = ProtocolCard(
        name="ratings",
        about="correlation, weighted kappa, alpha and difference of a judge's and people's ratings, the "
        "judge's scores on people's scale",
        ties="are equal ratings",
        failures="leave the row out",
        source="Spearman 1904; Kendall 1945 (tau-b); Cohen 1968; Krippendorff 2011",
        percent=False,
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        raters: int | None = None
        for row in rows:
            if row.candidates != 1 and row.ratings is None:
                raise Unscorable(
                    f"row {row.id!r} has {row.candidates} responses: this protocol scores ratings"
                )
            given = [vote.scores[0] for vote in row.votes if 0 in vote.scores]
            people = [math.nan if one is None else float(one) for one in row.ratings or ()]
            raters = len(people) if raters is None else raters
            if len(people) != raters:
                raise Unscorable(f"row {row.id!r} has {len(people)} raters, the rows before it {raters}")
            if not given:
                builder.counts["left out: no rating"] += 1
                continue
            spread = math.nan if len(given) < 2 else float(len({*given}) > 1)
            scale = row.scale or (math.nan, math.nan)
            builder.add_row(row, math.nan, sum(given) / len(given), spread, *scale, *people)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        _, judge, flipped, low, high, *people = units.values.T
        found: dict[str, Figure] = {}
        if people:
            rated = np.array(people)
            moved = on_scale(judge, low, high, scale_of(rated))
            found |= _beside_people(moved, rated, units.clusters)
            for name, places in units.sections.items() if len(units.sections) > 1 else ():
                found |= _of_section(name or "no domain", moved, rated, places)
        found["mean score"] = Mean(judge, is_share=False)
        (several,) = np.nonzero(~np.isnan(flipped))
        if len(several):
            found["flip rate"] = Mean(flipped[several], places=several)
        return found


RATINGS_PROTOCOL = Ratings()
_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 5.0), (1.0, 10.0), (0.0, 10.0), (0.0, 100.0))
"""Scales on which people rate, in the order in which they are tried."""


def scale_of(ratings: Values) -> tuple[float, float]:
    """Return the first usual scale that has all ratings, or else their range; nan without ratings."""
    known = ratings[~np.isnan(ratings)]
    if not len(known):
        return math.nan, math.nan
    low, high = float(known.min()), float(known.max())
    return next((one for one in _SCALES if one[0] <= low and high <= one[1]), (low, high))


def on_scale(scores: Values, low: Values, high: Values, scale: tuple[float, float]) -> Values:
    """Return the judge's scores on another scale; a score whose own scale is nan is on it already."""
    moved = scale[0] + (scores - low) / (high - low) * (scale[1] - scale[0])
    return np.where(np.isnan(low), scores, moved)


def _of_section(name: str, judge: Values, people: Values, places: NDArray[np.intp]) -> dict[str, Figure]:
    """Return the correlations and the mean difference of the rows of one section."""
    known = ~np.isnan(people[:, places])
    counts = known.sum(axis=0)
    own = places[counts > 0]
    if not len(own):
        return {}
    mean = (np.where(known, people[:, places], 0).sum(axis=0) / np.maximum(counts, 1))[counts > 0]
    return {
        f"Spearman, {name}": _correlated(ranked, judge[own], mean, own, len(judge)),
        f"Pearson, {name}": _correlated(pearson, judge[own], mean, own, len(judge)),
        f"judge minus people, {name}": Mean(judge[own] - mean, places=own, is_share=False),
    }


def _correlated(
    measure: Callable[[Values, Values], tuple[float, Values]],
    judge: Values,
    people: Values,
    places: NDArray[np.intp],
    size: int,
) -> Fitted:
    """Return a correlation of the rows at these places among `size` rows."""
    value, influence = measure(judge, people)
    errors = np.zeros(size)
    errors[places] = influence
    return correlation(value, len(judge), errors)


def _beside_people(judge: Values, people: Values, clusters: NDArray[np.intp] | None) -> dict[str, Figure]:
    known = ~np.isnan(people)
    counts = known.sum(axis=0)
    (places,) = np.nonzero(counts)
    if not len(places):
        return {}
    mean = np.where(known, people, 0).sum(axis=0)[places] / counts[places]
    own, size = judge[places], len(judge)
    levels, codes = np.unique(np.concatenate([own, mean]), return_inverse=True)
    found: dict[str, Figure] = {}
    if len(levels) <= _MOST_LEVELS:
        cells = codes[: len(own)] * len(levels) + codes[len(own) :]
        table = np.bincount(cells, minlength=len(levels) ** 2).astype(np.float64)
        for name, function in ORDINAL.items():
            counted = OfTable(partial(function, levels=levels), table.reshape(len(levels), -1), cells)
            errors = np.zeros(size)
            errors[places] = counted.influence(len(own))
            found[name] = correlation(counted.value, len(own), errors)
    else:
        fault = f"fewer than {LEAST_RATED} rows" if len(own) < LEAST_RATED else ""
        found["Spearman"] = _correlated(ranked, own, mean, places, size)
        found["Kendall"] = Statistic(tau(own, mean), len(own), fault)
    found["Pearson"] = _correlated(pearson, own, mean, places, size)
    prompts = {} if clusters is None else by_prompt(own, mean, clusters[places])
    for name, (values, first) in prompts.items():
        if len(values) > 1:
            found[f"mean {name} over prompts"] = mean_correlation(values, places[first], size)
    everybody = np.vstack([judge, people])
    if len(np.unique(everybody[~np.isnan(everybody)])) <= _MOST_LEVELS:
        found["alpha of judge and people"] = alpha(everybody, "ordinal")
        if len(people) > 1:
            found["alpha of people"] = alpha(people, "ordinal")
    found["people's mean score"] = Mean(mean, places=places, is_share=False)
    found["judge minus people"] = Mean(own - mean, places=places, is_share=False)
    found["mean absolute difference"] = Mean(np.abs(own - mean), places=places, is_share=False)
    return found
