"""JudgeBench: pairs of one model's responses to hard questions, one right and one wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmark_labels import judgebench_section
from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow

_HUB = "ScalerLab/JudgeBench"


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": row.need("pair_id"),
        "prompt": row.need("question"),
        "responses": [row.need("response_A"), row.need("response_B")],
        "label": row.need("label"),
        "domain": judgebench_section(str(row.need("source"))),
        "tags": [f"source={row.need('source')}"],
    }


JUDGEBENCH = Benchmark(
    name="judgebench",
    about="Which response is right: knowledge, reasoning, math, coding (Tan et al. 2024)",
    parts=(
        Part(name="gpt", hub=_HUB, split="gpt", rows=350, ids="9c52981cabb62245"),
        Part(name="claude", hub=_HUB, split="claude", rows=270),
    ),
    standard=("gpt",),
    columns={
        "pair_id": "id",
        "source": "mmlu-pro-..., livebench-reasoning, livebench-math or livecodebench",
        "question": "prompt",
        "response_A": "a response",
        "response_B": "the other",
        "label": "A>B or B>A",
    },
    protocols=("net-vote", "both-orders", "one-order", "first-order", "second-order", "position", "tir"),
    licence="none stated",
    order="both",
    example={
        "pair_id": "e302b0a0",
        "source": "livebench-math",
        "question": "What is 6 times 7?",
        "response_A": "6 times 7 is 42.",
        "response_B": "6 times 7 is 43.",
        "label": "A>B",
    },
    read=_read,
)
