"""RewardBench: pairs from 23 subsets in four sections, its scores, and its authors' summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import (
    Figures,
    JudgedRow,
    ProtocolCard,
    SummaryId,
    Units,
    Unscorable,
    Vote,
)
from tirjudge.evaluation.scoring import UnitsBuilder, credit, drawn_vote, section_figures
from tirjudge.evaluation.stored_outputs.base import Record, Unreadable, need_share
from tirjudge.statistics.estimators import Mean, SectionMean

SECTIONS = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {
        "math-prm": 984,
        "hep-cpp": 164,
        "hep-go": 164,
        "hep-java": 164,
        "hep-js": 164,
        "hep-python": 164,
        "hep-rust": 164,
    },
}
"""RewardBench's sections and the weights of their subsets (reward-bench, constants.py).

math-prm weighs as much as the six code subsets together, 984, although it has 447 examples.
"""

_ROWS = {subset: size for subsets in SECTIONS.values() for subset, size in subsets.items()} | {
    "math-prm": 447
}
"""Rows of RewardBench's subsets, which are their weights except for math-prm."""


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": f"{row.need('subset')}/{row.need('id')}",
        "prompt": row.need("prompt"),
        "chosen": row.need("chosen"),
        "rejected": row.need("rejected"),
        "domain": row.need("subset"),
    }


REWARDBENCH = Benchmark(
    name="rewardbench",
    about="Which response is better: chat, hard chat, safety, reasoning (Lambert et al. 2024)",
    parts=(Part(name="filtered", hub="allenai/reward-bench", split="filtered", rows=2985),),
    columns={
        "id": "unique within its subset",
        "subset": "alpacaeval-easy, ..., math-prm",
        "prompt": "prompt",
        "chosen": "the better response",
        "rejected": "the worse one",
    },
    protocols=(
        "rewardbench",
        "rewardbench-strict",
        "tir",
        "tie-half",
        "tie-wrong",
        "both-orders",
        "position",
    ),
    licence="ODC-BY",
    sections=_ROWS,
    read=_read,
)


_KNOWN = {subset for subsets in SECTIONS.values() for subset in subsets}


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
            builder.add_row(row, worth)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        subsets = section_figures(units, units.values[:, 0])
        sections: dict[str, SectionMean] = {}
        parts: list[Mean] = []
        shares: list[float] = []
        for section, weights in SECTIONS.items():
            judged = [subset for subset in weights if subset in subsets]
            if judged:
                sections[section] = SectionMean(
                    [subsets[one] for one in judged], [weights[one] for one in judged]
                )
                parts += sections[section].parts
                shares += sections[section].shares
        # The weights of each section add up to 1, so that all sections weigh the same.
        return {"mean of sections": SectionMean(parts, shares), **sections}


REWARDBENCH_PROTOCOL = RewardBench(
    ProtocolCard(
        name="rewardbench",
        about="sections weighted by example counts (math-prm counts 984), the mean of the four",
        ties="are worth 0.5",
        failures="are worth 0.5",
        source="RewardBench, constants.py and scripts/run_generative.py",
    )
)
REWARDBENCH_STRICT_PROTOCOL = RewardBench(
    ProtocolCard(
        name="rewardbench-strict",
        about="sections weighted by example counts (math-prm counts 984), the mean of the four",
        ties="are worth 0.5",
        failures="count as wrong",
        source="RM-R1's fork of RewardBench; TIR-Judge names no rule for failures",
    ),
    failure=0.0,
)


_TOLERANCE = 1e-6


class RewardBenchSubsets:
    """Rows are right, wrong or half right in the published proportion; which ones they are is unknown."""

    name = "rewardbench"
    about = "RewardBench's summary of one model: accuracy by subset"
    benchmark = "rewardbench"
    protocols = ("rewardbench", "rewardbench-strict")

    def recognises(self, row: Record) -> bool:
        return 2 * sum(subset in row for subset in _ROWS) > len(_ROWS)

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        for subset, size in _ROWS.items():
            yield from _expanded(subset, size, need_share(row, subset))


REWARDBENCH_OUTPUTS = RewardBenchSubsets()


def _expanded(subset: str, size: int, accuracy: float) -> Iterator[JudgedRow]:
    halves = round(2 * accuracy * size)
    if abs(halves - 2 * accuracy * size) > _TOLERANCE * size:
        raise Unreadable(f"{subset}: {accuracy} is not an accuracy over {size} rows")
    for number in range(size):
        worth = min(2, max(0, halves - 2 * number))
        best = ((1,), (0, 1), (0,))[worth]
        yield JudgedRow(id=SummaryId(f"{subset}-{number}"), votes=(Vote(best=best),), label=0, domain=subset)
