"""RM-Bench: a right and a wrong response in three styles each, to separate style from content."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow

_STYLES = 3
"""Concise, plain and detailed, Markdown."""
_DOMAINS = {"alpacaeval": "chat", "bigcode/humanevalpack": "code"}


def _read(row: PublishedRow) -> Iterator[Fields]:
    chosen, rejected = row.several("chosen", _STYLES), row.several("rejected", _STYLES)
    name, domain = f"{row.need('subset')}/{row.need('id')}", _domain(row)
    shared = {"prompt": row.need("prompt"), "domain": domain}
    if row.alone:
        yield {**shared, "id": name, "responses": [*chosen, *rejected], "tags": [f"group={name}"]}
        return
    for i, better in enumerate(chosen):
        for j, worse in enumerate(rejected):
            tags = [f"group={name}", f"cell={i}{j}"]
            yield {**shared, "id": f"{name}/{i}{j}", "chosen": better, "rejected": worse, "tags": tags}


def _domain(row: PublishedRow) -> str:
    """Return the column `domain`, or derive it from the subset: the authors' files have no such column."""
    domain = row.fields.get("domain")
    if domain:
        return "safety" if str(domain).startswith("safety") else str(domain)
    subset = str(row.need("subset"))
    return _DOMAINS.get(subset, "math" if "math" in subset else "safety")


RM_BENCH = Benchmark(
    name="rm-bench",
    about="Content against style: chat, code, math, safety, each 3 x 3 pairs a row (Liu et al. 2024)",
    parts=(Part(name="train", hub="THU-KEG/RM-Bench", split="train", rows=1327),),
    columns={
        "id": "id",
        "subset": "where it comes from",
        "domain": "chat, code, math or safety-...; the authors' files lack it",
        "prompt": "prompt",
        "chosen": "3 right responses: concise, plain, Markdown",
        "rejected": "3 wrong ones in the same styles",
    },
    protocols=("rm-bench", "rm-bench-tie-half", "both-orders"),
    licence="none stated",
    example={
        "id": "8",
        "subset": "alpacaeval",
        "domain": "chat",
        "prompt": "Name a prime.",
        "chosen": ["7", "Seven is a prime.", "**7**"],
        "rejected": ["8", "Eight is a prime.", "**8**"],
    },
    read=_read,
)
