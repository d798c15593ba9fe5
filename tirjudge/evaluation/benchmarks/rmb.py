"""RMB: pairs, and best-of-N sets in which the best response must beat every other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge.evaluation.benchmark_labels import rmb_section
from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError


def _read(row: PublishedRow) -> Iterator[Fields]:
    if "bon_uid" in row.fields:
        name = f"bon-{row.need('bon_uid')}"
        for place, loser in enumerate(row.several("loser_list")):
            yield _pair(row, f"{name}/{place}", "bon_best", loser, [f"group={name}"])
    else:
        yield _pair(row, f"pair-{row.need('pair_uid')}", "chosen", row.need("reject"), [])


def _pair(row: PublishedRow, name: str, better: str, worse: Any, tags: list[str]) -> Fields:
    if not isinstance(worse, dict) or worse.get("answer") is None:
        raise RowError("a worse response must be an object with 'answer'")
    category = str(row.need("category_path"))
    return {
        "id": name,
        "prompt": [{"role": turn.get("role"), "content": turn.get("content")} for turn in _turns(row)],
        "chosen": row.within(better, "answer"),
        "rejected": worse["answer"],
        "domain": rmb_section(category),
        "tags": [*tags, f"category={category}"],
    }


def _turns(row: PublishedRow) -> list[dict[str, Any]]:
    turns = row.several("conversation_input")
    if not all(isinstance(turn, dict) for turn in turns):
        raise RowError("conversation_input must be a list of chat messages")
    return turns


RMB = Benchmark(
    name="rmb",
    about="Helpful and harmless responses, in pairs and against several (Zhou et al. 2024)",
    parts=(Part(name="pairwise", rows=8714), Part(name="bon", rows=3786)),
    columns={
        "pair_uid or bon_uid": "id",
        "conversation_input": "chat messages",
        "chosen, reject": "pairs: objects with answer",
        "bon_best, loser_list": "best-of-N: an object, and a list of objects, with answer",
        "category_path": "holds Helpfulness or Harmlessness",
    },
    protocols=("rmb", "tir", "tie-half", "tie-wrong", "both-orders", "position"),
    licence="none stated",
    example={
        "pair_uid": "0",
        "category_path": "Pairwise_set/Helpfulness/Code/Documentation",
        "conversation_input": [{"role": "user", "content": "Name a prime.", "language": "English"}],
        "chosen": {"llm_name": "m", "answer": "Seven."},
        "reject": {"llm_name": "n", "answer": "Eight."},
    },
    read=_read,
)
