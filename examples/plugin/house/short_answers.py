"""A benchmark of rows that ask for a short answer and have a short and a long one."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": row.need("question"),
        "prompt": row.need("question"),
        "responses": [row.need("short"), row.need("long")],
        "label": 0,
    }


SHORT_ANSWERS = Benchmark(
    name="short-answers",
    about="Pairs in which the prompt asks for a short answer and only one response is short",
    parts=(Part(name="test", rows=3),),
    columns={"question": "prompt", "short": "the better response", "long": "the other"},
    protocols=("tir", "one-order"),
    licence="Apache-2.0",
    format="checked",
    read=_read,
)
