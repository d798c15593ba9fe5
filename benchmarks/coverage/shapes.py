"""Rows of clusters of any size, and the intervals of the figures that they give.

Two rows of a cluster are the same draw in 30 % of cases unless a function says otherwise. A row may be a
cluster of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage.simulation import Interval, Values
from tirjudge.evaluation.calibration import CalibratedRow, aurc, curve, point, reliability
from tirjudge.evaluation.judged_rows import Ids, Units, Unscorable
from tirjudge.evaluation.prediction_powered import prediction_powered
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.protocols.agreement import by_chance, cohen_kappa, confusion, macro
from tirjudge.evaluation.protocols.win_rate import bradley_terry
from tirjudge.evaluation.raters import (
    ORDINAL,
    alpha,
    by_prompt,
    chance_of_pi,
    correlation,
    mean_correlation,
    pearson,
    scott_pi,
)
from tirjudge.evaluation.significance import below, clustered_mcnemar
from tirjudge.statistics.clusters import left_out
from tirjudge.statistics.differences import difference_interval, unpaired_interval
from tirjudge.statistics.estimators import Estimator, Fitted, Mean, OfTable, SectionMean
from tirjudge.statistics.proportions import Proportion

Codes = NDArray[np.intp]
PEOPLE = {
    "as PandaLM": np.array([[0.33, 0.05, 0.04], [0.10, 0.35, 0.02], [0.05, 0.04, 0.02]]),
    "a rare loss": np.array([[0.80, 0.06, 0.02], [0.04, 0.06, 0.00], [0.01, 0.00, 0.01]]),
}
"""Joint shares of people's and the judge's classes: the first response, the second, a tie."""
WIN = np.array([1.0, 0.0, 0.5])


STRENGTHS = np.array([2.2, 1.2, 1.0, 0.4])


def alike(draw: np.random.Generator, shares: Values, codes: Codes) -> Codes:
    """Return cells drawn with these shares, of which two of a cluster are the same draw in 30 % of cases."""
    own = draw.choice(shares.size, len(codes), p=shares.ravel())
    shared = draw.choice(shares.size, int(codes.max()) + 1, p=shares.ravel())[codes]
    return np.where(draw.random(len(codes)) < 0.3**0.5, shared, own)


def rates(draw: np.random.Generator, codes: Codes, rate: float, icc: float) -> Values:
    scale = (1 - icc) / icc
    return draw.beta(rate * scale, (1 - rate) * scale, int(codes.max()) + 1)[codes]


def accuracy(draw: np.random.Generator, codes: Codes, rate: float, icc: float) -> Interval:
    right = draw.random(len(codes)) < rates(draw, codes, rate, icc)
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
        "F1 of a class": lambda table, cells: OfTable(f1_of_first, table, cells),
        "kappa": lambda table, cells: OfTable(cohen_kappa, table, cells, by_chance(table)),
        "Scott's pi": lambda table, cells: OfTable(scott_pi, table, cells, chance_of_pi(table)),
    }


def f1_of_first(table: Values) -> float:
    return 2 * float(table[0, 0]) / float(table[0].sum() + table[:, 0].sum())


def cells_of(shares: Values) -> tuple[Values, Codes]:
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


def of_prompts(draw: np.random.Generator, codes: Codes) -> dict[str, tuple[Values, NDArray[np.intp]]]:
    """Return the correlations of each prompt, as `by_prompt` does; prompts are more or less easy to rate."""
    noise = draw.uniform(0.3, 1.5, int(codes.max()) + 1)[codes]
    true = draw.uniform(1, 5, len(codes))
    one, other = (np.clip(np.round(true + noise * draw.normal(0, 1, len(codes))), 1, 5) for _ in range(2))
    return by_prompt(one, other, codes)


def prompts(draw: np.random.Generator, codes: Codes, name: str) -> Interval:
    values, first = of_prompts(draw, codes)[name]
    if len(values) < 2:
        return math.nan, math.nan
    return mean_correlation(values, first, len(codes)).interval(len(codes), codes)


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
    failed = draw.binomial(ran.astype(int), rates(draw, codes, 0.2, 0.3)).astype(float)
    return Mean(failed, ran, counts_trials=True).interval(len(codes), codes)


def cost(draw: np.random.Generator, codes: Codes) -> Interval:
    verdicts = (draw.random(len(codes)) < 0.9).astype(float)
    ran = alike(draw, np.array([0.1, 0.3, 0.3, 0.3]), codes).astype(float)
    return Mean(ran, verdicts, is_share=False, counts_trials=True).interval(len(codes), codes)


def lengths(draw: np.random.Generator, codes: Codes) -> Interval:
    shared = draw.lognormal(-0.18, 0.6, int(codes.max()) + 1)[codes]
    winner, loser = (draw.lognormal(-0.045, 0.3, len(codes)) for _ in range(2))
    return Mean(1.2 * shared * winner, shared * loser, is_share=False).interval(len(codes), codes)


def true_strength() -> float:
    """Return the expected share of wins of the first source against the others."""
    chances = STRENGTHS[:, None] / (STRENGTHS[:, None] + STRENGTHS)
    return float((chances[0].sum() - 0.5) / 3)


def ranked(draw: np.random.Generator, codes: Codes, shown: int = 2) -> Interval:
    """Return the interval of the first of four sources, of which each row shows a few."""
    rows = len(codes)
    common = draw.gumbel(size=(int(codes.max()) + 1, 4))[codes]
    same = (draw.random(rows) < 0.3**0.5)[:, None]
    score = np.where(same, common, draw.gumbel(size=(rows, 4))) + np.log(STRENGTHS)
    hidden = draw.permuted(np.tile(np.arange(4), (rows, 1)), axis=1)[:, shown:]
    score[np.arange(rows)[:, None], hidden] = -np.inf
    best = (score == score.max(axis=1, keepdims=True)).astype(float)
    found: Fitted = bradley_terry(("a", "b", "c", "d"), np.where(np.isinf(score), np.nan, best))[
        "Bradley-Terry a"
    ]
    return found.interval(rows, codes if int(codes.max()) + 1 < rows else None)


def games(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of a win rate by games, of which a much better response counts as three."""
    kinds = alike(draw, np.array([0.2, 0.3, 0.1, 0.3, 0.1]), codes)
    credits, counted = np.array([3.0, 1, 0.5, 0, 0])[kinds], np.array([3.0, 1, 1, 1, 3])[kinds]
    return Mean(credits, counted).interval(len(codes), codes)


def longer(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of the share of rows that the longest response won, where a fifth has none."""
    kinds = alike(draw, np.array([0.48, 0.32, 0.2]), codes)
    places = np.flatnonzero(kinds < 2)
    return Mean((kinds[places] == 0).astype(float), places=places).interval(len(codes), codes)


def own_family(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of the wins that a judge adds for its own family, known in half of the rows."""
    added = np.array([-1.0, -0.5, 0, 0.5, 1])[alike(draw, np.array([0.05, 0.1, 0.6, 0.1, 0.15]), codes)]
    places = np.flatnonzero(draw.random(len(codes)) < 0.5)
    return Mean(added[places], places=places, is_share=False).interval(len(codes), codes)


def unpaired(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of the difference of a run and another one of half as many prompts."""
    pair = []
    for own, rate in ((codes, 0.6), (codes[codes < (int(codes.max()) + 1) // 2], 0.8)):
        right = draw.random(len(own)) < rates(draw, own, rate, 0.3)
        pair.append((Mean(right.astype(float)), own))
    (one, first), (other, second) = pair
    return unpaired_interval(one, other, (len(first), len(second)), (first, second))


def of_class(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of the precision of the first response, as PandaLM's classes are."""
    people, said = np.divmod(alike(draw, PEOPLE["as PandaLM"], codes), 3)
    places = np.flatnonzero(said == 0)
    return Mean((people[places] == 0).astype(float), places=places).interval(len(codes), codes)


LEVEL = 0.4
"""Log-odds of a win at equal length."""


def at_equal_length(draw: np.random.Generator, codes: Codes) -> Interval:
    """Return the interval of a win rate that is controlled for lengths with a standard deviation of 100."""

    def drawn(size: int) -> tuple[Values, Values]:
        apart = draw.normal(20, 100, size)
        chance = 1 / (1 + np.exp(-LEVEL + 1.2 * np.tanh(apart / 100)))
        return apart, (draw.random(size) < chance).astype(float)

    shared = draw.random(len(codes)) < 0.3**0.5
    pairs = zip(drawn(int(codes.max()) + 1), drawn(len(codes)), strict=True)
    apart, won = (np.where(shared, common[codes], own) for common, own in pairs)
    even = np.full(len(codes), 1000.0)
    values = np.column_stack([won, even + apart, even, even * math.nan, even / 1000])
    units = Units(ids=Ids(), sections={}, values=values)
    try:
        (found,) = open_protocol("length-controlled").figures(units).values()
    except Unscorable:
        return math.nan, math.nan
    assert isinstance(found, Fitted)
    return found.interval(len(codes), codes)


def passed(draw: np.random.Generator, codes: Codes) -> Interval:
    solved = draw.binomial(10, rates(draw, codes, 0.3, 0.3)) / 10
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
    cells = alike(draw, CELLS, codes)
    return [
        CalibratedRow(
            id=str(number), decision=int(cell % 2 == 0), people=(1,), gold=1, votes=(), cluster=f"c{code}",
            confidence=0.6 if cell < 2 else 0.9,
        )
        for number, (cell, code) in enumerate(zip(cells, codes, strict=True))
    ]  # fmt: skip


def brier(draw: np.random.Generator, codes: Codes) -> Interval:
    return reliability(_calibrated(draw, codes)).brier_interval


def area(draw: np.random.Generator, codes: Codes) -> Interval:
    return curve(_calibrated(draw, codes), seed=int(draw.integers(2**31))).interval


CELLS = np.array([0.35, 0.15, 0.45, 0.05])
"""Shares of right and wrong verdicts with a confidence of 0.6, and of 0.9."""


def true_area() -> float:
    """Return the area under risk and coverage of rows with exactly these shares."""
    cells = np.arange(4).repeat((CELLS * 100_000).round().astype(int))
    mixed = np.random.default_rng(0).permutation(cells)
    return aurc(np.where(mixed < 2, 0.6, 0.9), (mixed % 2).astype(float))


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


def rated(
    draw: np.random.Generator, codes: NDArray[np.intp], noise: float = 0.8, bounds: Interval = (1, 5)
) -> Values:
    """Return ratings of a judge and three people, who have left out a fifth of the rows.

    Rows of a cluster are alike.
    """
    low, high = bounds
    n, groups = len(codes), int(codes.max()) + 1
    true = draw.uniform(low, high, groups)[codes]
    if groups < n:
        true = np.where(draw.random(n) < 0.5, true, draw.uniform(low, high, n))
    found = np.clip(np.round(true + draw.normal(0, noise, (4, n))), 1, 5)
    found[1:][draw.random((3, n)) < 0.2] = math.nan
    found[1, np.isnan(found[1:]).all(axis=0)] = 3
    return found


def correlations(given: Values, only: str = "") -> dict[str, Fitted]:
    both = ~np.isnan(given[1])
    found = {}
    if only in ("", "alpha"):
        found["alpha"] = alpha(given, "ordinal")
    if only in ("", "Pearson"):
        errors = np.zeros(given.shape[1])
        value, errors[both] = pearson(given[0, both], given[1, both])
        found["Pearson"] = correlation(value, int(both.sum()), errors)
    if only not in ("alpha", "Pearson"):
        first, second = given[0, both], given[1, both]
        cells = ((first - 1) * 5 + second - 1).astype(int)
        table = np.bincount(cells, minlength=25).reshape(5, 5).astype(float)
        for name, function in ORDINAL.items():
            if only in ("", name):
                counted = OfTable(partial(function, levels=np.arange(1.0, 6)), table, cells)
                errors = np.zeros(given.shape[1])
                errors[both] = counted.influence(len(cells))
                found[name] = correlation(counted.value, len(cells), errors)
    return found
