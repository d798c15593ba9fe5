"""PandaLM's files: people's labels, and judges' verdicts on the same pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import pandalm_label
from tirjudge.evaluation.stored_outputs.base import OTHER, Fields, Scale, Unreadable, need, reading

_VERDICTS = ("pandalm_result", "gpt_result")
_BEST = {"0": (0, 1), "1": (0,), "2": (1,), "tie": (0, 1)}
_ENOUGH = 20
"""Rows of which one must prefer the second response, unless the scale is another one."""


def _value(name: str, row: Fields) -> list[Any]:
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

    def recognises(self, row: Fields) -> bool:
        return any(name in row for name in (*_VERDICTS, "annotator1")) and "output" not in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        people = row if label is None else label
        if "annotator1" not in people:
            raise Unreadable("no annotators: give the test set with --labels", people)
        with reading(people):
            gold, annotations = pandalm_label(people)
        yield JudgedRow(
            id=str(need(row, "idx")),
            votes=tuple(_vote(str(row[name])) for name in _VERDICTS if name in row),
            label=gold[0] if len(gold) == 1 else None,
            tied=len(gold) > 1,
            extras={"annotators": annotations},
        )


PANDALM = PandaLm()


def _vote(verdict: str) -> Vote:
    """Read 0, 1, 2 or Tie; other texts, such as "garbage", are no verdict."""
    found = _BEST.get(verdict.strip().lower(), ())
    return Vote(best=found, order=(0, 1), stop="verdict" if found else "malformed")
