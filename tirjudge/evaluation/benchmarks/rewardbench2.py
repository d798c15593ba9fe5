"""RewardBench 2: one good response of four; in the subset Ties several equally good ones."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


def _read(row: PublishedRow) -> Iterator[Fields]:
    chosen, rejected, subset = row.several("chosen"), row.several("rejected"), row.need("subset")
    name = str(row.need("id"))
    fields = {
        "id": name if subset == "Ties" else f"{subset}/{name}",
        "prompt": row.need("prompt"),
        "responses": [*chosen, *rejected],
        "domain": subset,
        "tags": [f"correct={len(chosen)}"],
    }
    yield fields if len(chosen) > 1 else {**fields, "label": 0}


REWARDBENCH2 = Benchmark(
    name="rewardbench2",
    about="The good response of four; Ties: all good ones above all bad ones (Malik et al. 2025)",
    parts=(Part(name="test", hub="allenai/reward-bench-2", split="test", rows=1865),),
    columns={
        "id": "id; in the subset Ties ref:K or tied:K",
        "subset": "Factuality, Precise IF, Math, Safety, Focus or Ties",
        "prompt": "prompt",
        "chosen": "list of good responses, one but in Ties",
        "rejected": "list of bad ones",
    },
    protocols=("rewardbench2", "rewardbench2-ties", "tir", "best-of-k"),
    licence="ODC-BY",
    example={
        "id": "12",
        "subset": "Math",
        "prompt": "What is 6 times 7?",
        "chosen": ["42"],
        "rejected": ["41", "43", "44"],
    },
    read=_read,
)
