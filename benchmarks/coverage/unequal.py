"""Figures of clusters of unequal size: lognormal and Pareto sizes, and one cluster with half of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.coverage.shapes import (
    LEVEL,
    PEOPLE,
    WIN,
    Codes,
    accuracy,
    advantage,
    area,
    at_equal_length,
    below_margin,
    brier,
    cells_of,
    changes,
    classes,
    corrected,
    correlations,
    cost,
    first_shown,
    flips,
    games,
    judge_minus_people,
    lengths,
    longer,
    mean_rating,
    nominal,
    of_class,
    of_prompts,
    own_family,
    passed,
    programs,
    prompts,
    ranked,
    rated,
    ratings,
    risk,
    sections,
    tables,
    tested,
    ties,
    true_area,
    true_strength,
    unpaired,
    won,
)
from benchmarks.coverage.simulation import Case, Interval
from tirjudge.evaluation.raters import scott_pi

LEAST = 0.92
"""Least coverage over clusters of unequal size."""
Measure = Callable[[np.random.Generator, Codes], Interval]

NEAR_ONE = np.array([[0.48, 0.01], [0.01, 0.50]])
"""Joint shares of a judge and labels that nearly always agree."""


def lognormal(draw: np.random.Generator, groups: int) -> Codes:
    return np.ceil(draw.lognormal(1, 1, groups)).astype(np.intp)


def pareto(draw: np.random.Generator, groups: int) -> Codes:
    return np.minimum(np.ceil(draw.pareto(1.2, groups) + 0.5), 1000).astype(np.intp)


def giant(draw: np.random.Generator, groups: int) -> Codes:
    return np.append(np.full(groups - 1, 2), 2 * (groups - 1)).astype(np.intp)


SIZES: dict[str, Callable[[np.random.Generator, int], Codes]] = {
    "lognormal": lognormal,
    "Pareto": pareto,
    "one giant": giant,
}


def unequal_cases() -> Iterator[Case]:
    """Yield every case."""
    for sizes, drawn in SIZES.items():
        for groups in (40, 100, 300):
            found = figures() | of_prompts_of(drawn, groups)
            for name, (truth, measure) in found.items():

                def interval(
                    draw: np.random.Generator,
                    drawn: Callable[[np.random.Generator, int], Codes] = drawn,
                    groups: int = groups,
                    measure: Measure = measure,
                ) -> Interval:
                    return measure(draw, np.arange(groups).repeat(drawn(draw, groups)))

                yield Case(f"{name}, {groups} {sizes} clusters", truth, interval, least=LEAST, most=1.0)
            for name, test in tests().items():

                def p_value(
                    draw: np.random.Generator,
                    drawn: Callable[[np.random.Generator, int], Codes] = drawn,
                    groups: int = groups,
                    test: Callable[[np.random.Generator, Codes], float] = test,
                ) -> float:
                    return test(draw, np.arange(groups).repeat(drawn(draw, groups)))

                yield Case(f"{name}, {groups} {sizes} clusters", 0, p_value=p_value)


def figures() -> dict[str, tuple[float, Measure]]:
    """Return the truth of each figure, and what draws its interval for rows in clusters."""
    found: dict[str, tuple[float, Measure]] = {}
    for rate in (0.7, 0.95):
        for icc in (0.3, 0.8):
            found[f"accuracy {rate:g}, correlation {icc:g}"] = rate, partial(accuracy, rate=rate, icc=icc)
    found["accuracy with 40 % ties"] = 0.6, ties
    found["difference of accuracies"] = 0.0, changes
    found["mean of 4 sections"] = 0.75, partial(sections, runs=1)
    found["difference of means of 4 sections"] = 0.0, partial(sections, runs=2)
    for kind, shares in {"as PandaLM": PEOPLE["as PandaLM"], "near 1": NEAR_ONE}.items():
        for name, table in tables().items():
            truth = table(*cells_of(shares)).value
            found[f"{name}, {kind}"] = truth, partial(classes, shares=shares, table=table, runs=1)
            found[f"difference of {name}, {kind}"] = 0.0, partial(classes, shares=shares, table=table, runs=2)
        found[f"nominal alpha, {kind}"] = scott_pi(shares), partial(nominal, shares=shares)
    truths = correlations(rated(np.random.default_rng(0), np.arange(400_000)))
    for name, one in truths.items():
        found[f"{name} of ratings"] = one.value, partial(ratings, name=name)
    found["mean rating"] = 3.9, mean_rating
    found["judge minus people"] = 0.0, judge_minus_people
    found["win rate of a source"] = 0.6, won
    found["first shown wins"] = 0.55, first_shown
    found["syntax errors"] = 0.2, programs
    found["programs for each verdict"] = 2.0, cost
    found["win rate by games"] = (0.2 * 3 + 0.3 + 0.05) / 1.6, games
    found["longer wins"] = 0.6, longer
    found["wins of the judge's own family"] = 0.1, own_family
    found["win rate at equal length"] = float(1 / (1 + np.exp(-LEVEL))), at_equal_length
    shares = PEOPLE["as PandaLM"]
    found["precision of a class"] = float(shares[0, 0] / shares[:, 0].sum()), of_class
    found["difference of independent runs"] = 0.2, unpaired
    found["length of winners to losers"] = 1.2, lengths
    found["Bradley-Terry share"] = true_strength(), ranked
    found["pass@1"] = 0.3, passed
    found["flips of an attack"] = 0.15, partial(flips, net=False)
    found["net flips of an attack"] = 0.1, partial(flips, net=True)
    found["advantage probability"] = 0.8, advantage
    found["Brier score"] = (0.7 * 0.16 + 0.3 * 0.36 + 0.9 * 0.01 + 0.1 * 0.81) / 2, brier
    found["risk of kept verdicts"] = 0.1, risk
    found["area under risk and coverage"] = true_area(), area
    found["corrected win rate"] = float(PEOPLE["as PandaLM"].sum(axis=1) @ WIN), corrected
    return found


def of_prompts_of(
    drawn: Callable[[np.random.Generator, int], Codes], groups: int
) -> dict[str, tuple[float, Measure]]:
    """Return the mean correlations over prompts; the truth depends on the prompts' sizes."""
    draw, totals = np.random.default_rng(1), {"Pearson": [0.0, 0], "Kendall": [0.0, 0]}
    for _ in range(20_000 // groups):
        found = of_prompts(draw, np.arange(groups).repeat(drawn(draw, groups)))
        for name, total in totals.items():
            total[0] += float(found[name][0].sum())
            total[1] += len(found[name][0])
    return {
        f"mean {name} over prompts": (total / count, partial(prompts, name=name))
        for name, (total, count) in totals.items()
    }


def tests() -> dict[str, Callable[[np.random.Generator, Codes], float]]:
    return {"clustered McNemar": tested, "test of an annotator's margin": below_margin}
