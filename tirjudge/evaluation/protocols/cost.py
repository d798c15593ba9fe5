"""Cost of a verdict in tokens, seconds and programs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.units import UnitsBuilder
from tirjudge.statistics import Statistic


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
        builder = UnitsBuilder()
        for row in rows:
            if row.cost is None:
                raise Unscorable(f"row {row.id!r} has no record of its cost")
            verdicts = sum(bool(vote.best or vote.scores) for vote in row.votes)
            cost = row.cost
            builder.add(
                row.id,
                row.domain,
                math.nan,
                verdicts,
                cost.prompt_tokens,
                cost.completion_tokens,
                cost.seconds,
                cost.calls,
            )
        return builder.build()

    def figures(self, units: Units) -> Figures:
        verdicts, *sums = units.values[:, 1:].sum(axis=0)
        names = ("completion tokens", "prompt tokens", "seconds", "programs")
        prompt, completion, seconds, calls = (
            float(total / verdicts) if verdicts else math.nan for total in sums
        )
        return {
            name: Statistic(value, int(verdicts))
            for name, value in zip(names, (completion, prompt, seconds, calls), strict=True)
        }


COST = CostOfVerdict()
