"""JudgeLM's validation set: pairs that GPT-4 scored."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow

_UNSCORED = [-1, -1]
"""GPT-4's scores of a pair that it did not score; such rows are left out."""


def _read(row: PublishedRow) -> Iterator[Fields]:
    scores = row.several("score", 2)
    if scores == _UNSCORED:
        return
    first, second = scores
    yield {
        "id": row.need("question_id"),
        "prompt": row.need("question_body"),
        "responses": [row.need("answer1_body"), row.need("answer2_body")],
        "label": "tie" if first == second else "A" if first > second else "B",
        "gold_scores": scores,
    }


JUDGELM = Benchmark(
    name="judgelm",
    about="Agreement with GPT-4 in three classes, consistency and bias (Zhu et al. 2023; JudgeLRM Table 5)",
    parts=(
        Part(
            name="val",
            hub="BAAI/JudgeLM-100K",
            file="judgelm_val_5k.jsonl",
            beside="judgelm_val_5k_gpt4.jsonl",
            rows=5000,
        ),
    ),
    columns={
        "question_id": "id",
        "question_body": "prompt",
        "answer1_body": "a response",
        "answer2_body": "the other",
        "score": "from judgelm_val_5k_gpt4.jsonl: GPT-4's two scores; rows with -1, -1 are left out",
    },
    protocols=("three-class-f1-of-means", "three-class", "two-class", "position", "tir"),
    licence="see its card",
    row_by_row=False,
    order="both",
    read=_read,
)
