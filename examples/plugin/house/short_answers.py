"""A benchmark of one's own: rows with a short answer and a long one, where a short one was asked for."""

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
    about="Whether a judge sees that an answer is as short as was asked for",
    parts=(Part(name="test", rows=3),),
    columns={"question": "prompt", "short": "the better response", "long": "the other"},
    protocols=("tir", "one-order"),
    licence="Apache-2.0",
    format="checked",
    example={"question": "In one word: a prime?", "short": "Seven.", "long": "That would be seven."},
    read=_read,
)
