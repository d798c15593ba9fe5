"""Behaviour of a judge, whether it is right or not: positions, errors and cost."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Unscorable, Vote
from tirjudge.evaluation.scoring import UnitsBuilder, own_order, reversed_order
from tirjudge.statistics.estimators import Mean, Statistic


class Position:
    """Consistency and bias over pairs judged in both orders; no label is needed.

    A pair is consistent if both verdicts name the same response, or both are ties. Otherwise it is biased
    toward the position, first or second, that its verdicts name more often. The three shares add up to 1.
    """

    card = ProtocolCard(
        name="position",
        about="whether the verdict survives a change of order, and to which place it leans if not",
        ties="are a verdict of their own: a choice and a tie lean to where the choice was shown",
        failures="count as a tie",
        missing_ties=True,
        source="JudgeLM, eval_model_judgement.py: JudgeLRM, Table 5; flips and ties: J1, Table 3",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            votes = own_order(row), reversed_order(row)
            builder.counts["no verdict"] += sum(not vote.best for vote in votes)
            lean = sum(map(_leaning, votes))
            flipped = votes[0].choice != votes[1].choice
            tied = any(vote.choice is None for vote in votes)
            builder.add_row(row, not flipped, lean > 0, lean < 0, flipped, tied)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        consistent, first, second, flipped, tied = map(Mean, units.values.T)
        return {
            "consistency": consistent,
            "bias toward first": first,
            "bias toward second": second,
            "delta bias": Statistic(
                abs(first.value - second.value), len(units.ids), "an absolute value is biased near zero"
            ),
            "verdict flips": flipped,
            "tie rate": tied,
        }


def _leaning(vote: Vote) -> int:
    """Return 1 for a vote for the response shown first, -1 for the second, 0 for neither."""
    if vote.choice is None:
        return 0
    return 1 if vote.choice == vote.order[0] else -1


POSITION = Position()


_KINDS = ("syntax", "runtime", "limit", "refused")


class Errors:
    """Shares of programs by how they ended, and the share of missing verdicts.

    The row is the unit of the intervals, because its programs and answers depend on each other.
    """

    card = ProtocolCard(
        name="errors",
        about="syntax and runtime errors among the programs run, format errors among the answers",
        ties="are verdicts",
        failures="are the format errors, including exhausted budgets",
        source="TIR-Judge, Table 3 (which does not state its denominators)",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder("all read", "votes", "unread", "programs", *_KINDS)
        for row in rows:
            ended = [row.programs.count(kind) for kind in _KINDS]
            unread = [vote.stop for vote in row.votes if vote.stop != "verdict"]
            builder.counts.update(unread)
            builder.add_row(row, not unread, len(row.votes), len(unread), len(row.programs), *ended)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        votes, programs, refused = map(units.measure, ("votes", "programs", "refused"))
        if not votes.any():
            raise Unscorable("no row was judged")

        def share(name: str, among: NDArray[np.float64]) -> Mean:
            return Mean(units.measure(name), among, counts_trials=True)

        return {
            "syntax errors": share("syntax", programs - refused),
            "runtime errors": share("runtime", programs - refused),
            "stopped at a limit": share("limit", programs - refused),
            "refused programs": share("refused", programs),
            "format errors": share("unread", votes),
        }


ERRORS = Errors()


_COSTS = ("completion tokens", "prompt tokens", "seconds", "programs")


class CostOfVerdict:
    """Sums over the run divided by its verdicts, so that failed rows are paid for too."""

    card = ProtocolCard(
        name="cost",
        about="tokens, seconds and programs of the whole run, divided by its verdicts",
        ties="are verdicts",
        failures="add to the cost and are no verdicts",
        source="TIR-Judge, Figure 6",
        percent=False,
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder("credit", "verdicts", *_COSTS)
        for row in rows:
            if row.cost is None:
                raise Unscorable(f"row {row.id!r} has no record of its cost")
            verdicts = sum(bool(vote.best or vote.scores) for vote in row.votes)
            costs = (row.cost.completion_tokens, row.cost.prompt_tokens, row.cost.seconds, row.cost.calls)
            builder.add_row(row, math.nan, verdicts, *costs)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        verdicts = units.measure("verdicts")
        return {
            name: Mean(units.measure(name), verdicts, counts_trials=True, is_share=False) for name in _COSTS
        }


COST = CostOfVerdict()
