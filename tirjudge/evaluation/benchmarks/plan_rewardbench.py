"""Plan-RewardBench: the better one of two agents' trajectories; rows keep calls as Python dicts in a text."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError

_HUB = "wyy1112/Plan-RewardBench"
_PARTS = {
    "planning_single_easy": 144,
    "planning_single_hard": 158,
    "planning_multi_easy": 109,
    "planning_multi_hard": 73,
    "robust_recovery": 361,
    "safety_refusal": 51,
    "tool_irrelevance": 275,
}


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": f"{row.part}/{row.number}",
        "prompt": row.need("query"),
        "chosen": _transcript(row, "chosen"),
        "rejected": _transcript(row, "reject"),
        "tools": row.fields.get("tools"),
        "domain": row.part,
    }


def _transcript(row: PublishedRow, name: str) -> list[dict[str, Any]]:
    """Return a trajectory behind the user's first message, which the query repeats, in OpenAI's form.

    Results have no ids: each belongs to the earliest call that waits for one.
    """
    transcript: list[dict[str, Any]] = []
    waiting: list[str] = []
    count = 0
    messages = row.within(name, "messages")
    if not isinstance(messages, list) or len(messages) < 2:
        raise RowError(f"{name}: messages must be a list of the user's message and at least one more")
    for message in messages[1:]:
        said = dict(message) if isinstance(message, Mapping) else {}
        if said.get("role") == "tool_call":
            if not transcript or transcript[-1]["role"] != "assistant":
                transcript.append({"role": "assistant", "content": ""})
            count += 1
            waiting.append(f"call-{count}")
            call = {"id": waiting[-1], "type": "function", "function": _call(said.get("content"), name)}
            transcript[-1].setdefault("tool_calls", []).append(call)
        elif said.get("role") == "tool_response":
            id = waiting.pop(0) if waiting else ""
            transcript.append({**said, "role": "tool", "tool_call_id": id})
        else:
            transcript.append(said)
    return transcript


def _call(text: Any, name: str) -> dict[str, Any]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of an escape sequence that Python does not have
            call = ast.literal_eval(text)
        return {"name": call["name"], "arguments": call["arguments"]}
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
        raise RowError(f"{name}: a tool_call must be a Python dict with a name and arguments") from None


PLAN_REWARDBENCH = Benchmark(
    name="plan-rewardbench",
    about="Which agent's trajectory is better: planning, recovery, refusal, tools (Wang et al. 2026)",
    parts=tuple(
        Part(name=name, hub=_HUB, file=f"data/{name}.jsonl", rows=rows) for name, rows in _PARTS.items()
    ),
    columns={
        "query": "the user's messages",
        "tools": "the tools that were offered",
        "chosen": "object with messages: the better trajectory",
        "reject": "object with messages: the worse one",
        "uuid": "not used: several rows share one",
    },
    protocols=("plan-rewardbench", "every-order", "both-orders", "tir", "position"),
    licence="CC-BY-4.0",
    order="both",
    read=_read,
)
