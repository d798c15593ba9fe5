"""Agreement with people: classes with ties, and Cohen's kappa."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import (
    CLASSES,
    Figures,
    JudgedRow,
    ProtocolCard,
    Units,
    Unscorable,
    Vote,
    decision,
)
from tirjudge.evaluation.raters import alpha, chance_of_pi, scott_pi
from tirjudge.evaluation.scoring import UnitsBuilder, drawn_vote, own_order, reversed_order, section_figures
from tirjudge.statistics.estimators import Fitted, Mean, OfTable

Table = NDArray[np.float64]
"""Counts of pairs of classes, or shares, in an array of shape (classes, classes)."""
_TIE = 2
"""The class of a tie; 0 and 1 are the candidates."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Agreement over classes. Macro means are taken over the classes that occur in labels or verdicts."""

    card: ProtocolCard
    gold_ties: bool = True
    """False leaves out rows whose label is a tie, and counts a verdict of tie as the first response."""
    f1_of_means: bool = False
    """True for the harmonic mean of macro precision and recall, instead of the mean of the classes' F1."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            if row.candidates != 2:
                raise Unscorable(f"row {row.id!r} has {row.candidates} responses: this protocol scores pairs")
            if row.label is None and not row.tied:
                builder.counts["left out: no label"] += 1
                continue
            if row.tied and not self.gold_ties:
                builder.counts["left out: a gold tie"] += 1
                continue
            vote = drawn_vote(row)
            builder.count_outcomes(vote)
            gold = _TIE if row.label is None else row.label
            verdict = _TIE if vote.choice is None else vote.choice
            if verdict == _TIE and not self.gold_ties:
                verdict = 0
            builder.add_row(row, gold == verdict, gold, verdict, row.passes)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        agreed, gold, verdict, passes = units.values.T
        table, codes = confusion(gold, verdict)
        f1 = f1_of_means if self.f1_of_means else lambda counts: macro(counts)[2]
        figures: dict[str, Mean | OfTable | Fitted] = {
            "agreement": Mean(agreed),
            "precision": OfTable(lambda counts: macro(counts)[0], table, codes),
            "recall": OfTable(lambda counts: macro(counts)[1], table, codes),
            "F1": OfTable(f1, table, codes),
        }
        names = (*CLASSES, "tie") if passes.all() else ("A", "B", "tie")
        lowest = int(min(gold.min(), verdict.min()))
        for number in np.unique(np.concatenate([gold, verdict])).astype(int).tolist():
            for measure, classes in (("precision", verdict), ("recall", gold)):
                if len(places := np.flatnonzero(classes == number)):
                    figures[f"{measure} of {names[number]}"] = Mean(agreed[places], places=places)
            f1_of_class = partial(_f1_of_class, number=number - lowest)
            figures[f"F1 of {names[number]}"] = OfTable(f1_of_class, table, codes)
        if len(units.sections) < 2:
            return figures
        figures |= section_figures(units, agreed)
        for name, places in units.sections.items():
            own = OfTable(f1, *confusion(gold[places], verdict[places]))
            figures[f"F1 of {name or 'no domain'}"] = own.among(places, len(units.ids))
        return figures


def macro(pairs: Table) -> tuple[float, float, float]:
    """Return precision, recall and F1, each the mean over the classes that occur, of a table (gold, verdict).

    A class without a verdict has precision 0, one without a label recall 0.
    """
    actual, predicted = pairs.sum(axis=1), pairs.sum(axis=0)
    occurring = actual + predicted > 0
    both, actual, predicted = pairs.diagonal()[occurring], actual[occurring], predicted[occurring]
    precision = both / np.where(predicted > 0, predicted, 1)
    recall = both / np.where(actual > 0, actual, 1)
    f1 = 2 * both / (predicted + actual)
    return float(precision.mean()), float(recall.mean()), float(f1.mean())


def _f1_of_class(pairs: Table, number: int) -> float:
    """Return F1 of one class; nan if neither labels nor verdicts have it."""
    both = float(pairs[number].sum() + pairs[:, number].sum())
    return 2 * float(pairs[number, number]) / both if both else float("nan")


def f1_of_means(pairs: Table) -> float:
    """Return the harmonic mean of macro precision and recall."""
    precision, recall, _ = macro(pairs)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


_MOST_CLASSES = 64
"""Up to here classes are counted by their numbers; more, as in hostile files, are sorted first."""


def confusion(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[Table, NDArray[np.intp]]:
    """Count the pairs of classes, which are whole numbers, in an array of shape (classes, classes).

    Also returns the cell of each pair, in the flattened array.
    """
    lowest = min(one.min(), other.min())
    width = int(max(one.max(), other.max()) - lowest) + 1
    if width > _MOST_CLASSES:
        kinds, places = np.unique(np.concatenate([one, other]), return_inverse=True)
        one, other = places[: len(one)].astype(np.float64), places[len(one) :].astype(np.float64)
        lowest, width = np.float64(0), len(kinds)
    codes = ((one - lowest) * width + (other - lowest)).astype(np.intp)
    table = np.bincount(codes, minlength=width * width).reshape(width, width).astype(np.float64)
    return table, codes


THREE_CLASS = Classes(
    ProtocolCard(
        name="three-class",
        about="agreement over A, B and tie; macro precision, recall and F1, and those of each class",
        ties="are a class of their own",
        failures="count as a verdict of tie",
        missing_ties=True,
        source="JudgeLRM, Tables 1 to 4, PandaLM columns; PandaLM",
    )
)
THREE_CLASS_F1_OF_MEANS = Classes(
    ProtocolCard(
        name="three-class-f1-of-means",
        about="as `three-class`, and F1 is the harmonic mean of macro precision and recall",
        ties="are a class of their own",
        failures="count as a verdict of tie",
        missing_ties=True,
        source="JudgeLRM, Tables 1 and 3, JudgeLM columns of its own models",
    ),
    f1_of_means=True,
)


@dataclass(frozen=True, slots=True)
class ClassesInBothOrders:
    """Agreement of consistent verdicts: A, B or tie in both orders, and equal to the label."""

    card: ProtocolCard

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            if row.candidates != 2:
                raise Unscorable(f"row {row.id!r} has {row.candidates} responses: this protocol scores pairs")
            if row.label is None and not row.tied:
                builder.counts["left out: no label"] += 1
                continue
            votes = own_order(row), reversed_order(row)
            builder.count_outcomes(*votes)
            consistent = bool(votes[0].best) and votes[0].best == votes[1].best
            # A tie is a verdict that names both responses; no verdict names none, and agrees with nothing.
            agreed = consistent and votes[0].best == ((0, 1) if row.label is None else (row.label,))
            builder.add_row(row, agreed, consistent)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        agreed, consistent = units.values.T
        figures = {"agreement": Mean(agreed), "consistency": Mean(consistent)}
        return figures | (section_figures(units, agreed) if len(units.sections) > 1 else {})


THREE_CLASS_BOTH_ORDERS = ClassesInBothOrders(
    ProtocolCard(
        name="three-class-both-orders",
        about="agreement over A, B and tie of verdicts that are the same in both orders; consistency",
        ties="are a class of their own",
        failures="count as wrong and inconsistent",
        source="Auto-J, codes/leaderboard/pairwise_eval.py",
    )
)
TWO_CLASS = Classes(
    ProtocolCard(
        name="two-class",
        about="agreement over A and B; macro precision, recall and F1, and those of each class",
        ties="gold ties are left out, a verdict of tie names the first response",
        failures="count as a verdict of tie",
        missing_ties=True,
        source="JudgeLRM, Table 12",
    ),
    gold_ties=False,
)


_NO_CANDIDATE = -1
"""The class of a tie for rows with any number of candidates."""


@dataclass(frozen=True, slots=True)
class Kappa:
    """Cohen's kappa of every two raters, and Krippendorff's alpha of the annotators.

    The judge and the label are raters if a row has them.
    """

    card: ProtocolCard
    drawn: bool = False
    """True for the verdict of one seeded order; False for the row's verdict, which combines its orders."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        raters = 0
        for row in rows:
            ratings = list(map(float, row.annotations))
            judged = bool(row.votes) and (row.tied or row.label is not None)
            if judged:
                best = drawn_vote(row).best if self.drawn else decision(row)
                builder.count_outcomes(Vote(best=best))
                verdict = best[0] if len(best) == 1 else _NO_CANDIDATE
                ratings += [verdict, _NO_CANDIDATE if row.label is None else row.label]
            if len(ratings) < 2:
                builder.counts["left out: fewer than two raters"] += 1
                continue
            raters = raters or len(ratings)
            if len(ratings) != raters:
                raise Unscorable(f"row {row.id!r} has {len(ratings)} raters, the rows before it {raters}")
            builder.add_row(row, ratings[-1] == ratings[-2], judged, *ratings)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        judged, ratings = units.values[:, 1], units.values[:, 2:].T
        if judged.any() != judged.all():
            raise Unscorable("some rows have a verdict and some have none")
        people = len(ratings) - 2 * bool(judged.any())
        figures: dict[str, OfTable | Fitted] = {}
        if judged.any():
            figures["judge and label"] = kappa(ratings[-2], ratings[-1])
            table, codes = confusion(ratings[-2], ratings[-1])
            figures["Scott's pi of judge and label"] = OfTable(scott_pi, table, codes, chance_of_pi(table))
            for name, places in units.sections.items() if len(units.sections) > 1 else ():
                own = kappa(ratings[-2][places], ratings[-1][places])
                figures[f"judge and label, {name or 'no domain'}"] = own.among(places, len(units.ids))
        for one, other in combinations(range(people), 2):
            figures[f"annotators {one + 1} and {other + 1}"] = kappa(ratings[one], ratings[other])
        if people > 1:
            figures["alpha of annotators"] = alpha(ratings[:people], "nominal")
        return figures


def cohen_kappa(pairs: Table) -> float:
    """Return (p_o - p_e) / (1 - p_e) of a table of two raters (Cohen 1960).

    It is nan if both raters always choose the same one class.
    """
    observed, expected = float(pairs.trace() / pairs.sum()), by_chance(pairs)
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def by_chance(pairs: Table) -> float:
    """Return the share of equal classes that is expected of independent raters with these base rates."""
    shares = pairs / pairs.sum()
    return float(shares.sum(axis=1) @ shares.sum(axis=0))


def kappa(one: NDArray[np.float64], other: NDArray[np.float64]) -> OfTable:
    """Return Cohen's kappa of the classes of two raters."""
    table, codes = confusion(one, other)
    return OfTable(cohen_kappa, table, codes, by_chance(table))


_ABOUT = (
    "Cohen's kappa of every two annotators, and of {verdict} with the label (also Scott's pi); "
    "Krippendorff's alpha of all annotators"
)
KAPPA = Kappa(
    ProtocolCard(
        name="kappa",
        about=_ABOUT.format(verdict="each row's verdict, which combines its orders and samples,"),
        ties="are a class of their own",
        failures="count as a verdict of tie",
        missing_ties=True,
        source="Cohen 1960; PandaLM; Scott 1955; Krippendorff 2011",
        order="all orders combined",
        percent=False,
    )
)
KAPPA_ONE_ORDER = Kappa(
    replace(
        KAPPA.card,
        name="kappa-one-order",
        about=_ABOUT.format(verdict="the judge in one seeded order"),
        order="one order, drawn by seed",
    ),
    drawn=True,
)
