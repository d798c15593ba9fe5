"""Figures of independent rows and of clusters of equal size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage.shapes import (
    LEVEL,
    PEOPLE,
    WIN,
    Codes,
    accuracy,
    advantage,
    alike,
    area,
    at_equal_length,
    correlations,
    first_shown,
    lengths,
    nominal,
    ranked,
    rated,
    rates,
    true_area,
    true_strength,
    won,
)
from benchmarks.coverage.simulation import MOST, Case, Interval, Values
from tirjudge.evaluation.alternative_annotators import PASSES
from tirjudge.evaluation.calibration import LEAST_SCORED
from tirjudge.evaluation.prediction_powered import prediction_powered
from tirjudge.evaluation.protocols.agreement import by_chance, cohen_kappa, confusion, macro
from tirjudge.evaluation.raters import chance_of_pi, scott_pi
from tirjudge.evaluation.significance import below, clustered_mcnemar, false_discoveries, holm, mcnemar
from tirjudge.statistics.differences import difference_interval, unpaired_interval
from tirjudge.statistics.estimators import Estimator, Mean, OfTable, SectionMean
from tirjudge.statistics.proportions import paired_difference


def equal_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from shares()
    yield from means()
    yield from clusters()
    yield from sections()
    yield from comparisons()
    yield from tables()
    yield from against_people()
    yield from confidences()
    yield from ratings()
    yield from who_won()
    yield from several_runs()


def shares() -> Iterator[Case]:
    for n in (30, 100, 200, 2000):
        for rate in (0.05, 0.2, 0.7, 0.95):
            yield Case(
                f"accuracy {rate:g}, n = {n}",
                rate,
                lambda draw, n=n, rate=rate: Mean((draw.random(n) < rate).astype(float)).interval(n),
            )
        yield Case(
            f"accuracy with 40 % ties, n = {n}",
            0.6,
            lambda draw, n=n: Mean(draw.choice([0, 0.5, 1], n, p=[0.2, 0.4, 0.4])).interval(n),
        )
        # Preferences of an annotator that is nearly always sure: alpaca_eval.
        yield Case(f"win rate 0.05, n = {n}", 0.05, lambda draw, n=n: Mean(_preferences(draw, n)).interval(n))


def _preferences(draw: np.random.Generator, n: int) -> Values:
    """Return preferences with the mean 0.05: most are near 0, a few near 1."""
    wins = draw.random(n) < 0.045
    return np.where(wins, draw.beta(18, 2, n), draw.beta(1, 0.9545 / 0.009948 - 1, n))


def clusters() -> Iterator[Case]:
    for groups, size in ((200, 4), (40, 10), (50, 10), (30, 3)):
        codes = np.repeat(np.arange(groups), size)
        total = groups * size
        for rate, icc in product((0.7, 0.9, 0.95, 0.98), (0.05, 0.3, 0.8)):
            yield Case(
                f"accuracy {rate:g}, {groups} prompts of {size} rows, correlation {icc:g}",
                rate,
                partial(accuracy, codes=codes, rate=rate, icc=icc),
            )

        def both(draw: np.random.Generator, codes: Codes = codes) -> tuple[Values, Values]:
            one, other = ((draw.random(len(codes)) < rates(draw, codes, 0.7, 0.3)) * 1.0 for _ in range(2))
            return one, other

        yield Case(
            f"difference, {groups} prompts of {size} rows",
            0.0,
            lambda draw, both=both, codes=codes, total=total: difference_interval(
                *map(Mean, both(draw)), total, codes
            ),
        )
        yield Case(
            f"clustered test, {groups} prompts of {size} rows",
            0.0,
            p_value=lambda draw, both=both, codes=codes: clustered_mcnemar(np.subtract(*both(draw)), codes),
        )


def _sections(values: Values, size: int) -> Estimator:
    places = [np.arange(start, start + size) for start in range(0, len(values), size)]
    return SectionMean([Mean(values[one], places=one) for one in places])


def means() -> Iterator[Case]:
    """Yield means of ratings from 1 to 5."""
    shares = {"even": [0.1, 0.2, 0.3, 0.25, 0.15], "most are 5": [0.02, 0.03, 0.1, 0.25, 0.6]}
    for kind, own in shares.items():
        for n in (2, 3, 5, 10, 30, 100, 2000):
            yield Case(
                f"mean rating, {kind}, n = {n}",
                float(np.arange(1, 6) @ own),
                lambda draw, n=n, own=own: Mean(
                    draw.choice(np.arange(1.0, 6), n, p=own), is_share=False
                ).interval(n),
                # The t interval of a few whole numbers is wide.
                most=1.0 if n < 30 else MOST,
            )


def sections() -> Iterator[Case]:
    for size in (1, 2, 3, 5, 9, 10, 25):
        count = max(4, 200 // size)
        rates = np.linspace(0.5, 0.98, count).repeat(size)
        yield Case(
            f"mean of {count} sections of {size} rows",
            float(rates.mean()),
            lambda draw, rates=rates, size=size: _sections(
                (draw.random(len(rates)) < rates).astype(float), size
            ).interval(len(rates)),
        )
        for paired in (0.0, 0.8):

            def both(
                draw: np.random.Generator, rates: Values = rates, size: int = size, paired: float = paired
            ) -> Interval:
                first = draw.random(len(rates))
                second = np.where(draw.random(len(rates)) < paired, first, draw.random(len(rates)))
                pair = [_sections((one < rates).astype(float), size) for one in (first, second)]
                return difference_interval(*pair, len(rates))

            yield Case(f"difference of means of {count} sections of {size} rows, {paired:g} equal", 0, both)

        def over_all(draw: np.random.Generator, rates: Values = rates) -> Interval:
            pair = [Mean((draw.random(len(rates)) < rates).astype(float)) for _ in range(2)]
            return difference_interval(*pair, len(rates))

        yield Case(f"difference over all rows of {count} sections of {size} rows", 0, over_all)


def comparisons() -> Iterator[Case]:
    for n in (30, 100, 200, 2000):
        for up, down in ((0.05, 0.05), (0.07, 0.03), (0.2, 0.1), (0.3, 0.3)):

            def changes(draw: np.random.Generator, n: int = n, up: float = up, down: float = down) -> Values:
                return draw.choice([1.0, -1.0, 0.0], n, p=[up, down, 1 - up - down])

            yield Case(
                f"difference, {up + down:.0%} discordant, n = {n}",
                up - down,
                lambda draw, changes=changes, n=n: difference_interval(*_pair(changes(draw)), n),
            )
            if up == down:
                yield Case(
                    f"McNemar's mid-p test, {up + down:.0%} discordant, n = {n}",
                    0,
                    p_value=lambda draw, changes=changes: _mcnemar(changes(draw)),
                )


def _pair(changes: Values) -> tuple[Mean, Mean]:
    return Mean((changes < 0).astype(float)), Mean((changes > 0).astype(float))


def _mcnemar(changes: Values) -> float:
    return mcnemar(int((changes > 0).sum()), int((changes < 0).sum()))


def tables() -> Iterator[Case]:
    even = np.array([[0.30, 0.06, 0.04], [0.06, 0.30, 0.04], [0.04, 0.04, 0.12]])
    skewed = np.array([[0.50, 0.08, 0.02], [0.08, 0.24, 0.02], [0.02, 0.02, 0.02]])
    two = np.array([[0.84, 0.06], [0.04, 0.06]])
    near = np.array([[0.48, 0.01], [0.01, 0.50]])
    three = np.array([[0.43, 0.01, 0.01], [0.01, 0.43, 0.01], [0.005, 0.005, 0.09]])
    functions: dict[str, Callable[[Values], float]] = {
        "F1": lambda table: macro(table)[2],
        "precision": lambda table: macro(table)[0],
        "recall": lambda table: macro(table)[1],
        "kappa": cohen_kappa,
    }
    kinds = {"even classes": even, "skewed classes": skewed, "two skewed": two}
    kinds |= {"near 1": near, "three near 1": three}
    for n in (30, 60, 100, 200, 500, 2000):
        for kind, shares in kinds.items():
            for name, function in functions.items():

                def figure(
                    draw: np.random.Generator,
                    n: int = n,
                    shares: Values = shares,
                    function: Callable[[Values], float] = function,
                ) -> OfTable:
                    cells = draw.choice(shares.size, n, p=shares.ravel())
                    gold, said = np.divmod(cells, len(shares))
                    return of_table(function, gold, said)

                yield Case(
                    f"{name}, {kind}, n = {n}",
                    function(shares),
                    lambda draw, figure=figure, n=n: figure(draw).interval(n),
                )
                yield Case(
                    f"difference of {name}, {kind}, n = {n}",
                    0,
                    lambda draw, figure=figure, n=n: difference_interval(figure(draw), figure(draw), n),
                )


def of_table(function: Callable[[Values], float], gold: NDArray[np.intp], said: NDArray[np.intp]) -> OfTable:
    """Return a number of the table of two raters, as the protocols make it."""
    table, codes = confusion(gold.astype(float), said.astype(float))
    chances: dict[object, Callable[[Values], float]] = {cohen_kappa: by_chance, scott_pi: chance_of_pi}
    return OfTable(function, table, codes, chances[function](table) if function in chances else 0.0)


def against_people() -> Iterator[Case]:
    for kind, shares in PEOPLE.items():
        for labels in (30, 100, 500):
            for size in (1, 5):

                def corrected(
                    draw: np.random.Generator, labels: int = labels, size: int = size, shares: Values = shares
                ) -> Interval:
                    groups = (labels + 1000) // size
                    people, said = np.divmod(alike(draw, shares, codes := np.arange(groups).repeat(size)), 3)
                    mixed = draw.permutation(len(people)) if size > 1 else np.arange(len(people))
                    people, said, codes = people[mixed], said[mixed], codes[mixed]
                    return prediction_powered(
                        "",
                        WIN[people[:labels]],
                        WIN[said[:labels]],
                        WIN[said[labels:]],
                        codes if size > 1 else None,
                    ).interval

                yield Case(
                    f"corrected win rate, {kind}, {labels} labels, prompts of {size} rows",
                    float(shares.sum(axis=1) @ WIN),
                    corrected,
                )
    for n in (30, 50, 100, 500):
        for size in (1, 5):
            codes = np.arange(n).repeat(size)
            yield Case(
                f"alternative annotator test, {n} prompts of {size} rows",
                0,
                p_value=lambda draw, n=n, size=size, codes=codes: _replaced(draw, n, size, codes),
            )
            yield Case(
                f"advantage probability, {n} prompts of {size} rows", 0.8, partial(advantage, codes=codes)
            )
        shown = np.array([0.5, 0.7, 1.0])
        right = np.array([0.45, 0.7, 0.9])
        yield Case(
            f"Brier score, n = {n}",
            float(np.mean(right * (1 - shown) ** 2 + (1 - right) * shown**2)),
            lambda draw, n=n, shown=shown, right=right: _brier(draw, n, shown, right),
        )


def _replaced(draw: np.random.Generator, groups: int, size: int, codes: NDArray[np.intp]) -> float:
    """Return 0 if the test lets a judge replace three annotators who are ahead by the margin, else 1."""
    signs, shares = np.array([1.0, -1.0, 0.0]), np.array([0.2, 0.05, 0.75])
    together, *alone = (signs[alike(draw, shares, codes)] for _ in range(4))
    shared = draw.random(groups * size) < 0.6
    beaten = false_discoveries([below(np.where(shared, together, own), 0.15, codes) for own in alone])
    return float(np.mean(beaten) < PASSES)


def _brier(draw: np.random.Generator, n: int, shown: Values, right: Values) -> Interval:
    kinds = draw.integers(len(shown), size=n)
    if n < LEAST_SCORED:
        return math.nan, math.nan
    return Mean(((draw.random(n) < right[kinds]) - shown[kinds]) ** 2, is_share=False).interval(n)


def confidences() -> Iterator[Case]:
    """Yield AURC of a confidence with two values, and kappa, Scott's pi and alpha of rows in prompts."""
    truth = true_area()
    for groups, size in ((30, 1), (100, 1), (200, 1), (2000, 1), (100, 5)):
        yield Case(
            f"area under risk and coverage, {groups} prompts of {size} rows",
            truth,
            partial(area, codes=np.arange(groups).repeat(size)),
        )
    shares = PEOPLE["as PandaLM"]
    coefficients: dict[str, Callable[[Values], float]] = {"kappa": cohen_kappa, "Scott's pi": scott_pi}
    for groups, size in ((30, 5), (100, 5), (100, 1), (500, 1)):
        codes = np.arange(groups).repeat(size)
        for name, function in coefficients.items():

            def figure(
                draw: np.random.Generator,
                groups: int = groups,
                size: int = size,
                function: Callable[[Values], float] = function,
                codes: NDArray[np.intp] = codes,
            ) -> Interval:
                gold, said = np.divmod(alike(draw, shares, codes), 3)
                return of_table(function, gold, said).interval(len(codes), codes)

            yield Case(f"{name} as PandaLM, {groups} prompts of {size} rows", function(shares), figure)

        # For two raters of many rows, alpha equals Scott's pi.
        yield Case(
            f"nominal alpha, {groups} prompts of {size} rows",
            scott_pi(shares),
            partial(nominal, codes=codes, shares=shares),
        )


def ratings() -> Iterator[Case]:
    """Yield numbers of a judge and three people, who rate from 1 to 5; the truth is that of many rows."""
    for kind, noise, bounds in (("even", 0.8, (1, 5)), ("most are 5", 0.8, (3.5, 7)), ("close", 0.3, (1, 5))):
        large = rated(np.random.default_rng(0), np.arange(400_000), noise, bounds)
        truths = correlations(large)
        for n in (30, 60, 100, 200, 2000):
            for size in (1, 5) if n > 60 else (1,):
                codes = np.arange(n).repeat(size)
                for name in truths:

                    def figure(
                        draw: np.random.Generator,
                        n: int = n,
                        size: int = size,
                        name: str = name,
                        noise: float = noise,
                        bounds: tuple[float, float] = bounds,
                        codes: NDArray[np.intp] = codes,
                    ) -> Interval:
                        found = rated(draw, codes, noise, bounds)
                        return correlations(found, name)[name].interval(n * size, codes)

                    yield Case(f"{name}, {kind}, {n} prompts of {size} rows", truths[name].value, figure)


def who_won() -> Iterator[Case]:
    strongest = true_strength()
    for shown in (2, 3):
        for n in (30, 60, 200, 2000):
            yield Case(
                f"Bradley-Terry share, {shown} of 4 sources a row, n = {n}",
                strongest,
                partial(ranked, codes=np.arange(n), shown=shown),
            )
        for groups in (30, 100):
            yield Case(
                f"Bradley-Terry share, {shown} of 4 sources a row, {groups} prompts of 4 rows",
                strongest,
                partial(ranked, codes=np.arange(groups).repeat(4), shown=shown),
            )
    for groups, size in ((30, 1), (100, 1), (2000, 1), (30, 4), (100, 4)):
        rows, codes = f"{groups} prompts of {size} rows", np.arange(groups).repeat(size)
        yield Case(f"win rate, {rows}", 0.6, partial(won, codes=codes))
        truth = 1 / (1 + math.exp(-LEVEL))
        yield Case(f"win rate at equal length, {rows}", truth, partial(at_equal_length, codes=codes))
        yield Case(f"shown first wins, {rows}", 0.55, partial(first_shown, codes=codes))
    for n in (30, 100, 200, 2000):
        yield Case(f"length of winners to losers, n = {n}", 1.2, partial(lengths, codes=np.arange(n)))
        yield Case(
            f"McNemar with shared ties, n = {n}",
            0,
            p_value=lambda draw, n=n: clustered_mcnemar(_before_and_after(draw, n), np.arange(n)),
        )


def several_runs() -> Iterator[Case]:
    """Yield comparisons of a first run with three others, of unpaired summaries, and of attacked rows."""
    for n in (30, 100, 200, 2000):

        def smallest(draw: np.random.Generator, n: int = n) -> float:
            first, *others = (draw.random((4, n)) < 0.7).astype(float)
            return min(holm([_mcnemar(one - first) for one in others]))

        yield Case(f"any of three tests by Holm, n = {n}", 0, p_value=smallest)

        def unpaired(draw: np.random.Generator, n: int = n) -> Interval:
            one, other = ((draw.random(size) < rate).astype(float) for size, rate in ((n, 0.6), (2 * n, 0.8)))
            return unpaired_interval(Mean(one), Mean(other), (n, 2 * n))

        yield Case(f"difference of independent runs, n = {n} and {2 * n}", 0.2, unpaired)
        for up, down in ((0.05, 0.02), (0.3, 0.1)):

            def flips(draw: np.random.Generator, n: int = n, up: float = up, down: float = down) -> Interval:
                gained, lost, _ = draw.multinomial(n, [up, down, 1 - up - down])
                return paired_difference(int(gained), int(lost), n)[1]

            yield Case(f"net flips of an attack, {up:.0%} and {down:.0%}, n = {n}", up - down, flips)

        def apart(draw: np.random.Generator, n: int = n) -> Interval:
            judge = draw.choice([1.0, 2, 3, 4, 5], n, p=[0.02, 0.03, 0.1, 0.25, 0.6])
            people = np.clip(judge - draw.choice([0, 1, 2], n, p=[0.6, 0.3, 0.1]), 1, 5)
            return Mean(judge - people, is_share=False).interval(n)

        # 2 % of the judge's ratings are 1, which no person lowers, and 3 % are 2, lowered by at most 1.
        yield Case(f"judge minus people, n = {n}", 0.98 * 0.5 - 0.03 * 0.1, apart)


def _before_and_after(draw: np.random.Generator, n: int) -> Values:
    """Return changes of credits with ties, of two runs that agree about 60 % of the rows and are as good."""
    before, after = (draw.choice([0, 0.5, 1], n, p=[0.2, 0.2, 0.6]) for _ in range(2))
    return np.where(draw.random(n) < 0.6, 0, after - before)
