"""RationaleRM's benchmarks: people's reasons in atomic points, with which a judge's reasons are matched."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow


def _read(row: PublishedRow) -> Iterator[Fields]:
    """Yield a pair with people's reasons, and with its label if the row has one."""
    preference = row.fields.get("overall_preference")
    label = None if not isinstance(preference, int) else "AB"[preference > 0] if preference else "tie"
    yield {
        "id": row.fields.get("id") or f"{row.part}/{row.number}",
        "prompt": row.need("context"),
        "responses": [row.need("response1"), row.need("response2")],
        "checklist": row.several("human-checklist"),
        "label": label,
        "domain": row.fields.get("domain") or "",
    }


_COLUMNS = {
    "context": "chat messages, or a text",
    "response1": "a response",
    "response2": "the other",
    "human-checklist": "list: people's reasons, one point each",
    "domain, id": "optional",
    "overall_preference": "optional: from -3 (response 1) to 3 (response 2)",
}
_EXAMPLE = {
    "domain": "general",
    "context": [{"role": "user", "content": "Write a rhyme."}],
    "response1": "Roses are red.",
    "response2": "Roses are red, violets are blue.",
    "human-checklist": ["Response 1 does not rhyme"],
    "overall_preference": 2,
}


HELPSTEER3_ATOMIC = Benchmark(
    name="helpsteer3-atomic",
    about="Agreement of a judge's reasons with people's (Wang et al., RationaleRM)",
    parts=(Part(name="test", hub="Qwen/RationaleRM", file="data/helpsteer3_test_1000.jsonl", rows=1000),),
    columns=_COLUMNS,
    protocols=("rationale-consistency", "one-order"),
    licence="see its card; HelpSteer3 is CC-BY-4.0",
    format="rationale",
    example=_EXAMPLE,
    read=_read,
)


CW_ATOMIC = Benchmark(
    name="cw-atomic",
    about="Agreement of a judge's reasons with people's, in creative writing (Wang et al., RationaleRM)",
    parts=(Part(name="test", rows=207),),
    columns=_COLUMNS,
    protocols=("rationale-consistency", "one-order"),
    licence="not published",
    format="rationale",
    example=_EXAMPLE,
    read=_read,
)
