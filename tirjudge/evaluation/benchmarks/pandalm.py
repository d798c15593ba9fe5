"""PandaLM's test set: pairs labelled by three people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge_environments.tasks import RowError

_LABELS = {0: "tie", 1: "A", 2: "B"}


def _read(row: PublishedRow) -> Iterator[Fields]:
    votes = [row.need(f"annotator{number}") for number in (1, 2, 3)]
    if any(vote not in _LABELS for vote in votes):
        raise RowError("annotator1, annotator2 and annotator3 must be 0 (tie), 1 or 2")
    (label, count), *_ = Counter(votes).most_common()
    if count == 1:
        raise RowError("the three annotators disagree: no majority")
    instruction, given = str(row.need("instruction")), str(row.fields.get("input") or "")
    yield {
        "id": row.need("idx"),
        "prompt": f"{instruction}\n\n{given}" if given.strip() else instruction,
        "responses": [row.need("response1"), row.need("response2")],
        "label": _LABELS[label],
        "tags": [f"annotators={','.join(map(str, votes))}"],
    }


PANDALM = Benchmark(
    name="pandalm",
    about="Agreement with people in three classes (Wang et al. 2023; JudgeLRM Tables 1 and 12)",
    parts=(Part(name="test", rows=999, ids="59d93683fd20fb53"),),
    columns={
        "idx": "id",
        "instruction": "prompt",
        "input": "what it is about; may be empty",
        "response1": "a response",
        "response2": "the other",
        "annotator1, annotator2, annotator3": "0 tie, 1 or 2; the label is what most say",
    },
    protocols=("three-class", "two-class", "position", "one-order", "tir"),
    licence="Apache-2.0",
    order="both",
    example={
        "idx": 0,
        "instruction": "Make it shorter.",
        "input": "If you have any questions about it, please let me know.",
        "response1": "If you have any questions, ask.",
        "response2": "Any questions?",
        "annotator1": 2,
        "annotator2": 2,
        "annotator3": 0,
    },
    read=_read,
)
