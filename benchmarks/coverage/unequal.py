"""Figures of clusters of unequal size: lognormal and Pareto sizes, and one cluster with half of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage.rows import (
    PEOPLE,
    STRENGTHS,
    WIN,
    correlations,
    rated,
)
from benchmarks.coverage.simulation import Case, Interval, Values
from tirjudge.evaluation.calibration import CalibratedRow, point, reliability
from tirjudge.evaluation.prediction_powered import prediction_powered
from tirjudge.evaluation.protocols.agreement import by_chance, cohen_kappa, confusion, macro
from tirjudge.evaluation.protocols.win_rate import bradley_terry
from tirjudge.evaluation.raters import alpha, chance_of_pi, scott_pi
from tirjudge.evaluation.significance import below, clustered_mcnemar
from tirjudge.statistics import (
    Estimator,
    Fitted,
    Mean,
    OfTable,
    Proportion,
    SectionMean,
    difference_interval,
    left_out,
)

LEAST = 0.92
"""Least coverage over clusters of unequal size."""
Codes = NDArray[np.intp]
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
            for name, (truth, measure) in figures().items():

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
            truth = table(*_cells(shares)).value
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
    found["length of winners to losers"] = 1.2, lengths
    chances = STRENGTHS[:, None] / (STRENGTHS[:, None] + STRENGTHS)
    found["Bradley-Terry share"] = float((chances[0].sum() - 0.5) / 3), ranked
    found["pass@1"] = 0.3, passed
    found["flips of an attack"] = 0.15, partial(flips, net=False)
    found["net flips of an attack"] = 0.1, partial(flips, net=True)
    found["advantage probability"] = 0.8, advantage
    found["Brier score"] = (0.7 * 0.16 + 0.3 * 0.36 + 0.9 * 0.01 + 0.1 * 0.81) / 2, brier
    found["risk of kept verdicts"] = 0.1, risk
    found["corrected win rate"] = float(PEOPLE["as PandaLM"].sum(axis=1) @ WIN), corrected
    return found


def tests() -> dict[str, Callable[[np.random.Generator, Codes], float]]:
    return {"clustered McNemar": tested, "test of an annotator's margin": below_margin}


def alike(draw: np.random.Generator, shares: Values, codes: Codes) -> Codes:
    """Return cells drawn with these shares, of which two of a cluster are the same draw in 30 % of cases."""
    own = draw.choice(shares.size, len(codes), p=shares.ravel())
    shared = draw.choice(shares.size, int(codes.max()) + 1, p=shares.ravel())[codes]
    return np.where(draw.random(len(codes)) < 0.3**0.5, shared, own)


def _rates(draw: np.random.Generator, codes: Codes, rate: float, icc: float) -> Values:
    scale = (1 - icc) / icc
    return draw.beta(rate * scale, (1 - rate) * scale, int(codes.max()) + 1)[codes]


def accuracy(draw: np.random.Generator, codes: Codes, rate: float, icc: float) -> Interval:
    right = draw.random(len(codes)) < _rates(draw, codes, rate, icc)
    return Mean(right.astype(float)).interval(len(codes), codes)


def ties(draw: np.random.Generator, codes: Codes) -> Interval:
    credits = np.array([0.0, 0.5, 1.0])[alike(draw, np.array([0.2, 0.4, 0.4]), codes)]
    return Mean(credits).interval(len(codes), codes)


def _pair(draw: np.random.Generator, codes: Codes) -> tuple[Values, Values]:
    """Return the credits of two runs, which differ in 20 % of the rows."""
    cells = alike(draw, np.array([0.55, 0.1, 0.1, 0.25]), codes)
    return (cells < 2).astype(float), ((cells == 0) | (cells == 2)).astype(float)


def changes(draw: np.random.Generator, codes: Codes) -> Interval:
    return difference_interval(*map(Mean, _pair(draw, codes)), len(codes), codes)


def tested(draw: np.random.Generator, codes: Codes) -> float:
    one, other = _pair(draw, codes)
    return clustered_mcnemar(other - one, codes)


def below_margin(draw: np.random.Generator, codes: Codes) -> float:
    """Return the p value of a mean difference that equals the margin."""
    signs = np.array([1.0, -1.0, 0.0])[alike(draw, np.array([0.3, 0.15, 0.55]), codes)]
    return below(signs, 0.15, codes)


def sections(draw: np.random.Generator, codes: Codes, runs: int) -> Interval:
    section = codes % 4
    rate = np.array([0.6, 0.7, 0.8, 0.9])[section]
    common = draw.random(int(codes.max()) + 1)[codes]

    def mean() -> Estimator:
        same = draw.random(len(codes)) < 0.3**0.5
        right = (np.where(same, common, draw.random(len(codes))) < rate).astype(float)
        places = [np.flatnonzero(section == one) for one in range(4)]
        return SectionMean([Mean(right[one], places=one) for one in places])

    if runs == 1:
        return mean().interval(len(codes), codes)
    return difference_interval(mean(), mean(), len(codes), codes)


def tables() -> dict[str, Callable[[Values, Codes], OfTable]]:
    return {
        "precision": lambda table, cells: OfTable(lambda one: macro(one)[0], table, cells),
        "recall": lambda table, cells: OfTable(lambda one: macro(one)[1], table, cells),
        "F1": lambda table, cells: OfTable(lambda one: macro(one)[2], table, cells),
        "kappa": lambda table, cells: OfTable(cohen_kappa, table, cells, by_chance(table)),
        "Scott's pi": lambda table, cells: OfTable(scott_pi, table, cells, chance_of_pi(table)),
    }


def _cells(shares: Values) -> tuple[Values, Codes]:
    """Return a table of many rows with these shares, and the cells of its rows."""
    table = (shares * 10_000).round()
    return table, np.arange(shares.size).repeat(table.ravel().astype(int))


def classes(
    draw: np.random.Generator,
    codes: Codes,
    shares: Values,
    table: Callable[[Values, Codes], OfTable],
    runs: int,
) -> Interval:
    def drawn() -> OfTable:
        gold, said = np.divmod(alike(draw, shares, codes), len(shares))
        return table(*confusion(gold.astype(float), said.astype(float)))

    if runs == 1:
        return drawn().interval(len(codes), codes)
    return difference_interval(drawn(), drawn(), len(codes), codes)


def nominal(draw: np.random.Generator, codes: Codes, shares: Values) -> Interval:
    pair = np.divmod(alike(draw, shares, codes), len(shares))
    return alpha(np.array(pair, dtype=float), "nominal").interval(len(codes), codes)


def ratings(draw: np.random.Generator, codes: Codes, name: str) -> Interval:
    return correlations(rated(draw, codes), name)[name].interval(len(codes), codes)


def mean_rating(draw: np.random.Generator, codes: Codes) -> Interval:
    given = alike(draw, np.array([0, 0.05, 0.1, 0.2, 0.2, 0.45]), codes).astype(float)
    return Mean(given, is_share=False).interval(len(codes), codes)


def judge_minus_people(draw: np.random.Generator, codes: Codes) -> Interval:
    apart = np.array([-2.0, -1, 0, 1, 2])[alike(draw, np.array([0.05, 0.2, 0.5, 0.2, 0.05]), codes)]
    return Mean(apart, is_share=False).interval(len(codes), codes)


def won(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of a source in half of the rows, which wins half of them and ties in 20 %."""
    credits = np.array([1.0, 0.5, 0.0])[alike(draw, np.array([0.5, 0.2, 0.3]), codes)]
    places = np.flatnonzero(draw.random(len(codes)) < 0.5)
    return Mean(credits[places], places=places).interval(len(codes), codes)


def first_shown(draw: np.random.Generator, codes: Codes) -> Interval:
    shown = alike(draw, np.array([0.15, 0.6, 0.25]), codes).astype(float)
    decided = np.where(draw.random(len(codes)) < 0.1, 0.0, 2.0)
    return Mean(shown * (decided > 0), decided).interval(len(codes), codes)


def programs(draw: np.random.Generator, codes: Codes) -> Interval:
    ran = draw.integers(0, 4, len(codes)).astype(float)
    failed = draw.binomial(ran.astype(int), _rates(draw, codes, 0.2, 0.3)).astype(float)
    return Mean(failed, ran, counts_trials=True).interval(len(codes), codes)


def cost(draw: np.random.Generator, codes: Codes) -> Interval:
    verdicts = (draw.random(len(codes)) < 0.9).astype(float)
    ran = alike(draw, np.array([0.1, 0.3, 0.3, 0.3]), codes).astype(float)
    return Mean(ran, verdicts, is_share=False, counts_trials=True).interval(len(codes), codes)


def lengths(draw: np.random.Generator, codes: Codes) -> Interval:
    shared = draw.lognormal(-0.18, 0.6, int(codes.max()) + 1)[codes]
    winner, loser = (draw.lognormal(-0.045, 0.3, len(codes)) for _ in range(2))
    return Mean(1.2 * shared * winner, shared * loser, is_share=False).interval(len(codes), codes)


def ranked(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of the first of four sources, of which each row shows two."""
    rows = len(codes)
    common = draw.gumbel(size=(int(codes.max()) + 1, 4))[codes]
    same = (draw.random(rows) < 0.3**0.5)[:, None]
    score = np.where(same, common, draw.gumbel(size=(rows, 4))) + np.log(STRENGTHS)
    hidden = draw.permuted(np.tile(np.arange(4), (rows, 1)), axis=1)[:, 2:]
    score[np.arange(rows)[:, None], hidden] = -np.inf
    best = (score == score.max(axis=1, keepdims=True)).astype(float)
    found: Fitted = bradley_terry(("a", "b", "c", "d"), np.where(np.isinf(score), np.nan, best))[
        "Bradley-Terry a"
    ]
    return found.interval(rows, codes)


def passed(draw: np.random.Generator, codes: Codes) -> Interval:
    solved = draw.binomial(10, _rates(draw, codes, 0.3, 0.3)) / 10
    return Mean(solved).interval(len(codes), codes)


def flips(draw: np.random.Generator, codes: Codes, net: bool) -> Interval:
    cells = alike(draw, np.array([0.15, 0.05, 0.8]), codes)
    gained, lost = (Mean((cells == one).astype(float)) for one in (0, 1))
    return difference_interval(lost, gained, len(codes), codes) if net else gained.interval(len(codes), codes)


def advantage(draw: np.random.Generator, codes: Codes) -> Interval:
    agreed = np.array([alike(draw, np.array([0.2, 0.8]), codes) for _ in range(3)])
    influence = (agreed - agreed.mean(axis=1)[:, None]).mean(axis=0) / len(codes)
    return Proportion.of_influence(float(agreed.mean()), influence * left_out(codes), codes).interval


def _calibrated(draw: np.random.Generator, codes: Codes) -> list[CalibratedRow]:
    """Return rows with a confidence of 0.6 or 0.9, which is right in 70 and 90 % of the rows."""
    cells = alike(draw, np.array([0.35, 0.15, 0.45, 0.05]), codes)
    return [
        CalibratedRow(
            id=str(number), decision=int(cell % 2 == 0), people=(1,), gold=1, votes=(), cluster=f"c{code}",
            confidence=0.6 if cell < 2 else 0.9,
        )
        for number, (cell, code) in enumerate(zip(cells, codes, strict=True))
    ]  # fmt: skip


def brier(draw: np.random.Generator, codes: Codes) -> Interval:
    return reliability(_calibrated(draw, codes)).brier_interval


def risk(draw: np.random.Generator, codes: Codes) -> Interval:
    return point(_calibrated(draw, codes), 0.9).risk.interval


def corrected(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of a mean of which one row in five is labelled."""
    people, said = np.divmod(alike(draw, PEOPLE["as PandaLM"], codes), 3)
    order = np.argsort(draw.random(len(codes)), kind="stable")
    few = max(2, len(codes) // 5)
    one, other = order[:few], order[few:]
    return prediction_powered(
        "", WIN[people[one]], WIN[said[one]], WIN[said[other]], codes[np.append(one, other)]
    ).interval
