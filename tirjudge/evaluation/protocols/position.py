"""Position consistency and bias: how verdicts change when the responses change places."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Vote
from tirjudge.evaluation.units import UnitsBuilder, own_order, reversed_order
from tirjudge.statistics import Proportion


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
            builder.add(row.id, row.domain, not flipped, lean > 0, lean < 0, flipped, tied)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        shares = [Proportion(float(column.sum()), len(column)) for column in units.values.T]
        consistent, first, second, flipped, tied = shares
        return {
            "consistency": consistent,
            "bias toward first": first,
            "bias toward second": second,
            "delta bias": abs(first.rate - second.rate),
            "verdict flips": flipped,
            "tie rate": tied,
        }


def _leaning(vote: Vote) -> int:
    """Return 1 for a vote for the response shown first, -1 for the second, 0 for neither."""
    if vote.choice is None:
        return 0
    return 1 if vote.choice == vote.order[0] else -1


POSITION = Position()
