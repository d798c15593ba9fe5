"""PandaLM's test set: pairs labelled by three people, and the outputs of PandaLM and JudgeLRM on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.stored_outputs.base import (
    OTHER,
    Record,
    Scale,
    Unreadable,
    need,
    need_text,
    pair_vote,
    reading,
)
from tirjudge_environments import Malformed
from tirjudge_environments.formats.judgelrm import read_scores

_ANNOTATORS = ("annotator1", "annotator2", "annotator3")
_BEST_OF_CLASS = {0: (0, 1), 1: (0,), 2: (1,)}
_CLASSES = tuple(map(str, _BEST_OF_CLASS))


def _people(row: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the candidates in first place by majority of PandaLM's annotators, and each annotator's class.

    Two candidates are a tie. The classes are 0 for a tie, and 1 or 2 for a response. Raises KeyError for a
    row without annotators, and ValueError for another class or if all three disagree.
    """
    for name in _ANNOTATORS:
        if str(row[name]) not in _CLASSES:
            raise ValueError(f"{name} is {row[name]!r}, not 0 (tie), 1 or 2")
    classes = tuple(int(row[name]) for name in _ANNOTATORS)
    chosen = max(classes, key=classes.count)
    if classes.count(chosen) == 1:
        raise ValueError("the three annotators disagree: no majority")
    return _BEST_OF_CLASS[chosen], classes


def _read(row: PublishedRow) -> Iterator[Fields]:
    best, votes = _people({name: row.need(name) for name in _ANNOTATORS})
    instruction, given = str(row.need("instruction")), str(row.fields.get("input") or "")
    yield {
        "id": row.need("idx"),
        "prompt": f"{instruction}\n\n{given}" if given.strip() else instruction,
        "responses": [row.need("response1"), row.need("response2")],
        "label": "tie" if len(best) > 1 else "AB"[best[0]],
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
    read=_read,
)


_VERDICTS = ("pandalm_result", "gpt_result")
_BEST = {"0": (0, 1), "1": (0,), "2": (1,), "tie": (0, 1)}
_ENOUGH = 20
"""Rows of which one must prefer the second response, unless the scale is another one."""


def _value(name: str, row: Record) -> list[Any]:
    return [row.get(name)]


def _fault(counts: Mapping[float, int]) -> str:
    if {0.0, 1.0} <= counts.keys() and OTHER not in counts and sum(counts.values()) >= _ENOUGH:
        return "is 0 or 1 in all rows, never 2: PandaLM's scale is 0 (tie), 1 (the first) and 2 (the second)"
    return ""


class PandaLm:
    """Reads rows of the test set (three annotators), or verdicts that are joined with it by `idx`."""

    name = "pandalm"
    about = "WeOpenML/PandaLM: testset-v1.json, and verdicts (--labels testset-v1.json)"
    benchmark = "pandalm"
    protocols = ("three-class", "two-class", "kappa")
    scales = tuple(Scale(name, partial(_value, name), _fault) for name in (*_VERDICTS, "annotator1"))

    def recognises(self, row: Record) -> bool:
        return any(name in row for name in (*_VERDICTS, "annotator1")) and "output" not in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        people = row if label is None else label
        if "annotator1" not in people:
            raise Unreadable("no annotators: give the test set with --labels", people)
        yield _judged(row, people, *(_vote(str(row[name])) for name in _VERDICTS if name in row))


PANDALM_OUTPUTS = PandaLm()


def _judged(row: Record, people: Record, *votes: Vote) -> JudgedRow:
    """Return a row with the label and the annotations of people."""
    with reading(people):
        gold, annotations = _people(people)
    return JudgedRow(
        id=str(need(row, "idx")),
        votes=votes,
        label=gold[0] if len(gold) == 1 else None,
        tied=len(gold) > 1,
        annotations=annotations,
    )


def _vote(verdict: str) -> Vote:
    """Read 0, 1, 2 or Tie; other texts, such as "garbage", are no verdict."""
    found = _BEST.get(verdict.strip().lower(), ())
    return Vote(best=found, order=(0, 1), stop="verdict" if found else "malformed")


class JudgeLrm:
    """Reads `output` as the judge format judgelrm-pair does; labels come from the row's annotators."""

    name = "judgelrm"
    about = "NuoJohnChen/JudgeLRM: outputs on PandaLM's test set"
    benchmark = "pandalm"
    protocols = ("three-class", "three-class-f1-of-means", "two-class", "kappa")

    def recognises(self, row: Record) -> bool:
        return "output" in row and "response1" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        yield _judged(row, row if label is None else label, _scored(need_text(row, "output")))


JUDGELRM_OUTPUTS = JudgeLrm()


def _scored(text: str) -> Vote:
    scores = read_scores(text, 2)
    if isinstance(scores, Malformed):
        return Vote(best=(), order=(0, 1), stop="malformed")
    return Vote(best=pair_vote(*scores), order=(0, 1), scores=dict(enumerate(scores)))
