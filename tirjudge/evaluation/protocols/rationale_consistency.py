"""Rationale consistency: the share of people's reasons that a judge's reasons express."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units
from tirjudge.evaluation.units import UnitsBuilder, drawn_vote
from tirjudge.statistics import Proportion, Statistic

RECALL, PRECISION = "recall", "average precision"
"""Keys of a row's extras, from its matching; None if the MetaJudge's answer is missing or unreadable."""


class RationaleConsistency:
    """Mean soft recall of the matchings, and the accuracy of the verdicts."""

    card = ProtocolCard(
        name="rationale-consistency",
        about="mean soft recall of people's reasons by the judge's first five, matched one to one",
        ties="are verdicts: right where the label is a tie",
        failures="a judge without reasons scores 0; rows that the MetaJudge does not answer are left out",
        source="Rationale, Eq. 1 and 2, section 2.3",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            if RECALL not in row.extras:
                builder.counts["left out: not matched (give --meta-judge)"] += 1
                continue
            if row.extras[RECALL] is None:
                builder.counts["left out: no answer from the MetaJudge"] += 1
                continue
            labelled = bool(row.votes) and (row.tied or row.label is not None)
            right = labelled and self._right(row, builder)
            builder.add(row.id, row.domain, row.extras[RECALL], row.extras[PRECISION], labelled, right)
        return builder.build()

    def _right(self, row: JudgedRow, builder: UnitsBuilder) -> bool:
        vote = drawn_vote(row)
        if not vote.best:
            builder.counts["no verdict"] += 1
        return vote.tie if row.tied else vote.choice == row.label

    def figures(self, units: Units) -> Figures:
        recall, precision, labelled, right = units.values.T
        figures: dict[str, Proportion | Statistic | float] = {
            "rationale consistency": float(recall.mean()),
            "average precision": float(precision.mean()),
        }
        if labelled.any():
            figures["outcome accuracy"] = Proportion(float(right.sum()), int(labelled.sum()))
        if len(units.sections) > 1:
            for name, places in units.sections.items():
                figures[name or "no domain"] = Statistic(float(recall[places].mean()), len(places))
        return figures


RATIONALE_CONSISTENCY = RationaleConsistency()
