"""FollowBenchEval: pairs in which one response follows a constraint; its rows are not published."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": row.fields.get("id") or f"item-{row.number}",
        "prompt": row.need("prompt"),
        "chosen": row.need("chosen"),
        "rejected": row.need("rejected"),
        "domain": row.fields.get("category") or "",
    }


FOLLOWBENCH_EVAL = Benchmark(
    name="followbench-eval",
    about="Which response follows a constraint, right in both orders (Saha et al. 2025; J1 Table 2)",
    parts=(Part(name="test", rows=205),),
    columns={
        "prompt": "text, or chat messages",
        "chosen": "follows the constraint",
        "rejected": "does not",
        "id, category": "optional",
    },
    protocols=("both-orders", "one-order", "tir", "position"),
    licence="not published",
    order="both",
    example={"prompt": "Name a prime in one word.", "chosen": "Seven", "rejected": "It is seven."},
    read=_read,
)
