"""RewardBench: pairs from 23 subsets in four sections."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmark_labels import REWARDBENCH_ROWS
from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


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
    sections=REWARDBENCH_ROWS,
    example={
        "id": 0,
        "subset": "alpacaeval-easy",
        "prompt": "Name a prime.",
        "chosen": "Seven is a prime.",
        "rejected": "Eight is a prime.",
    },
    read=_read,
)
