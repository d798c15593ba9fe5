"""Accuracy of one vote per row, of every vote, and of the two votes on a pair in both orders."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Vote, decision
from tirjudge.evaluation.scoring import (
    UnitsBuilder,
    credit,
    drawn_vote,
    own_order,
    reversed_order,
    section_figures,
)
from tirjudge.records.verdicts import verdict_credit
from tirjudge.statistics.estimators import Mean, SectionMean

_WRONG = "count as wrong"


@dataclass(frozen=True, slots=True)
class OneOrder:
    """Accuracy of one vote per row, over all rows and as the mean of the sections."""

    card: ProtocolCard
    vote: Callable[[JudgedRow], Vote] = drawn_vote
    """Chooses the vote that counts."""
    share_ties: bool = False
    """True if a tie of k has the credit 1 / k."""
    sections_first: bool = False
    """True if the mean of the sections is the headline."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            vote = self.vote(row)
            builder.count_outcomes(vote)
            worth = credit(vote, label, share_ties=self.share_ties)
            builder.add_row(row, worth, vote.tie, not vote.best)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        worth, tied, missing = units.values.T
        accuracy: Figures = {"accuracy": Mean(worth)}
        ties = over_parsed(worth, missing) | {"tie rate": Mean(tied)}
        if len(units.sections) < 2:
            return {**accuracy, **ties}
        sections = section_figures(units, worth)
        mean: Figures = {"mean of sections": SectionMean(list(sections.values()))}
        first, second = (mean, accuracy) if self.sections_first else (accuracy, mean)
        return {**first, **second, **ties, **sections}


def over_parsed(credits: NDArray[np.float64], missing: NDArray[np.float64]) -> dict[str, Mean]:
    """Return the accuracy over the rows with a verdict, which papers print as well; none if all have one."""
    places = np.flatnonzero(missing == 0)
    if not missing.any() or not len(places):
        return {}
    return {"accuracy over parsed verdicts": Mean(credits[places], places=places)}


def accuracy_figures(units: Units, credits: NDArray[np.float64]) -> dict[str, Mean | SectionMean]:
    """Return the mean credit of all units, and where there are several sections, of each and their mean."""
    accuracy: dict[str, Mean | SectionMean] = {"accuracy": Mean(credits)}
    if len(units.sections) < 2:
        return accuracy
    sections = section_figures(units, credits)
    return {**accuracy, "mean of sections": SectionMean(list(sections.values())), **sections}


class VerdictAccuracy:
    """Accuracy of the one verdict on each row: the accuracy that every command prints of a result file."""

    card = ProtocolCard(
        name="verdict",
        about="accuracy of each row's verdict, which combines its orders and samples",
        ties="a tie of k is worth 1/k: 0.5 for a pair whose orders disagree",
        failures="count as wrong; verdicts that were left open are left out",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            if row.left_open:
                builder.counts["left out: left open"] += 1
                continue
            best = decision(row)
            builder.counts["tie"] += len(best) > 1
            builder.counts["no verdict"] += not best
            builder.add_row(row, verdict_credit(best, label), len(best) > 1, not best)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        worth, tied, missing = units.values.T
        return accuracy_figures(units, worth) | over_parsed(worth, missing) | {"tie rate": Mean(tied)}


VERDICT = VerdictAccuracy()
ONE_ORDER = OneOrder(
    ProtocolCard(
        name="one-order",
        about="accuracy in one seeded order",
        ties="count as wrong",
        failures=_WRONG,
        source="J1, section 3",
    )
)
FIRST_ORDER = OneOrder(
    ProtocolCard(
        name="first-order",
        about="accuracy with the responses in the row's own order",
        ties="count as wrong",
        failures=_WRONG,
        source="J1, Table 3, (a, b)",
    ),
    vote=own_order,
)
SECOND_ORDER = OneOrder(
    ProtocolCard(
        name="second-order",
        about="accuracy with the responses the other way round",
        ties="count as wrong",
        failures=_WRONG,
        source="J1, Table 3, (b, a)",
    ),
    vote=reversed_order,
)
TIR = OneOrder(
    ProtocolCard(
        name="tir",
        about="accuracy in one seeded order",
        ties="a tie of k is worth 1/k: 0.5 for a pair",
        failures=_WRONG,
        source="TIR-Judge, Appendix D",
    ),
    share_ties=True,
)
PPE = OneOrder(
    ProtocolCard(
        name="ppe",
        about="accuracy in one seeded order, the mean over PPE's sets",
        ties="a tie of k is worth 1/k: 0.5 for a pair",
        failures=_WRONG,
        source="TIR-Judge, Table 1; J1, Table 1 (whose ties count as wrong: see one-order)",
    ),
    share_ties=True,
    sections_first=True,
)


@dataclass(frozen=True, slots=True)
class EveryOrder:
    """Accuracy over all votes. The row is the unit, because its votes depend on each other."""

    card: ProtocolCard
    share_ties: bool = False
    """True if a tie of k has the credit 1 / k, and the mean of the sections is the headline."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            votes = row.sample()
            builder.count_outcomes(*votes)
            right = sum(credit(vote, label, share_ties=self.share_ties) for vote in votes)
            builder.add_row(row, right / len(votes) if votes else 0.0, right, len(votes))
        return builder.build()

    def figures(self, units: Units) -> Figures:
        _, right, votes = units.values.T
        accuracy: Figures = {"accuracy": Mean(right, votes)}
        if len(units.sections) < 2:
            return accuracy
        sections = {
            name or "no domain": Mean(right[places], votes[places], places)
            for name, places in units.sections.items()
        }
        if not self.share_ties:
            return {**accuracy, **sections}
        return {"mean of sections": SectionMean(list(sections.values())), **accuracy, **sections}


EVERY_ORDER = EveryOrder(
    ProtocolCard(
        name="every-order",
        about="accuracy over all orders, each a sample of its own",
        ties=_WRONG,
        failures=_WRONG,
        source="CodeJudgeBench",
    )
)
PLAN_REWARDBENCH = EveryOrder(
    ProtocolCard(
        name="plan-rewardbench",
        about="accuracy over all orders, each a sample of its own, the mean of the sections",
        ties="are worth 0.5",
        failures=_WRONG,
        source="Plan-RewardBench, eval/evaluate_benchmark_final.py",
    ),
    share_ties=True,
)


def consistently_right(votes: tuple[Vote, Vote], label: int) -> bool:
    """Return True if both votes name the label."""
    return all(vote.choice == label for vote in votes)


def net_right(votes: tuple[Vote, Vote], label: int) -> bool:
    """Return True for more votes for the label than against it; ties and missing verdicts are neither."""
    first, second = (vote.choice for vote in votes)
    return (first == label) + (second == label) > (first not in (label, None)) + (second not in (label, None))


@dataclass(frozen=True, slots=True)
class BothOrders:
    """Accuracy of a decision from the votes in both orders."""

    card: ProtocolCard
    right: Callable[[tuple[Vote, Vote], int], bool]
    """Decides from both votes and the label if a row is right."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            votes = own_order(row), reversed_order(row)
            builder.count_outcomes(*votes)
            builder.add_row(row, self.right(votes, label))
        return builder.build()

    def figures(self, units: Units) -> Figures:
        return accuracy_figures(units, units.values[:, 0])


BOTH_ORDERS = BothOrders(
    ProtocolCard(
        name="both-orders",
        about="a row is right when the verdict is right in both orders",
        ties="count as wrong",
        failures="count as wrong",
        source="J1, section 3 (position-consistent accuracy: JudgeBench, FollowBenchEval)",
    ),
    right=consistently_right,
)
NET_VOTE = BothOrders(
    ProtocolCard(
        name="net-vote",
        about="a row is right when more of its two verdicts are for the label than against it",
        ties="count neither way: one right verdict and a tie are right",
        failures="count neither way",
        source="JudgeBench, utils/metrics.py",
    ),
    right=net_right,
)
