"""Pairs in which one response follows its instruction: IFBench of AgentRM, and FollowBenchEval.

allenai's IFBench is a different dataset.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


def _read_ifbench(row: PublishedRow) -> Iterator[Fields]:
    if "text_chosen" in row.fields:
        chosen, rejected = row.several("text_chosen", 2), row.several("text_rejected", 2)
        yield {
            "id": row.need("id"),
            "prompt": chosen[:1],
            "chosen": chosen,
            "rejected": rejected,
            "domain": row.need("domain"),
        }
        return
    yield {
        "id": row.need("id"),
        "prompt": row.need("instruction"),
        "chosen": row.within("chosen", "content"),
        "rejected": row.within("rejected", "content"),
        "domain": _level(row.within("rejected", "unsatisfied_constraints")),
    }


def _level(unsatisfied: object) -> str:
    """Return level-3 (hardest) if the worse response misses one constraint, level-1 if three or more."""
    missed = len(unsatisfied) if isinstance(unsatisfied, list) else 0
    return f"level-{max(1, 4 - max(1, missed))}"


IFBENCH_AGENTRM = Benchmark(
    name="ifbench-agentrm",
    about="Which response follows all constraints of its instruction (Peng et al. 2025; TIR-Judge's IFBench)",
    parts=(Part(name="train", hub="THU-KEG/IFBench", split="train", rows=444, ids="6a03c6e9be1430b3"),),
    columns={
        "id": "id",
        "instruction": "prompt",
        "chosen": "object with content: follows all constraints",
        "rejected": "object with content and unsatisfied_constraints: those it misses",
        "text_chosen, text_rejected, domain": "instead, in the authors' files: two messages each, level-3",
    },
    protocols=("tir", "one-order", "tie-half", "tie-wrong", "both-orders", "position"),
    licence="MIT-style",
    read=_read_ifbench,
)


def _read_followbench(row: PublishedRow) -> Iterator[Fields]:
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
    read=_read_followbench,
)
