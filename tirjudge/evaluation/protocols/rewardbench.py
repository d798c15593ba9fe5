"""RewardBench: four sections, each the mean of its subsets weighted by example counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.benchmark_labels import REWARDBENCH
from tirjudge.evaluation.units import UnitsBuilder, credit, drawn_vote, section_means
from tirjudge.statistics import Statistic

_KNOWN = {subset for subsets in REWARDBENCH.values() for subset in subsets}


@dataclass(frozen=True, slots=True)
class RewardBench:
    """Scores of the sections and their mean; a section is computed from the subsets that were judged."""

    card: ProtocolCard
    failure: float = 0.5
    """Credit of a row without a verdict."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row, label in builder.labelled(rows):
            if row.domain not in _KNOWN:
                raise Unscorable(f"row {row.id!r}: domain {row.domain!r} is not a subset of RewardBench")
            vote = drawn_vote(row)
            builder.count_outcomes(vote)
            worth = credit(vote, label, share_ties=True) if vote.best else self.failure
            builder.add(row.id, row.domain, worth)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        means = section_means(units, units.values[:, 0])
        sections = {}
        for section, weights in REWARDBENCH.items():
            judged = [subset for subset in weights if subset in means]
            if judged:
                mean = np.average([means[one] for one in judged], weights=[weights[one] for one in judged])
                sections[section] = Statistic(float(mean), sum(len(units.sections[one]) for one in judged))
        return {"mean of sections": sum(one.value for one in sections.values()) / len(sections), **sections}


REWARD_BENCH = RewardBench(
    ProtocolCard(
        name="rewardbench",
        about="sections weighted by example counts (math-prm counts 984), the mean of the four",
        ties="are worth 0.5",
        failures="are worth 0.5",
        source="RewardBench, constants.py and scripts/run_generative.py",
    )
)
REWARD_BENCH_STRICT = RewardBench(
    ProtocolCard(
        name="rewardbench-strict",
        about="sections weighted by example counts (math-prm counts 984), the mean of the four",
        ties="are worth 0.5",
        failures="count as wrong",
        source="RM-R1's fork of RewardBench; TIR-Judge names no rule for failures",
    ),
    failure=0.0,
)
