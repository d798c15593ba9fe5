"""PandaLM's files: people's labels, and judges' verdicts on the same pairs."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import pandalm_annotations, pandalm_best
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable

_VERDICTS = ("pandalm_result", "gpt_result")
_BEST = {"0": (0, 1), "1": (0,), "2": (1,), "tie": (0, 1)}


class PandaLm:
    """Reads rows of the test set (three annotators), or verdicts that are joined with it by `idx`."""

    name = "pandalm"
    about = "WeOpenML/PandaLM: testset-v1.json, and verdicts (--labels testset-v1.json)"
    benchmark = "pandalm"
    protocols = ("three-class", "two-class", "kappa")

    def recognises(self, row: Fields) -> bool:
        return any(name in row for name in (*_VERDICTS, "annotator1")) and "output" not in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        people = label or row
        if "annotator1" not in people:
            raise Unreadable("no annotators: give the test set with --labels")
        gold = pandalm_best(people)
        yield JudgedRow(
            id=str(row["idx"]),
            votes=tuple(_vote(str(row[name])) for name in _VERDICTS if name in row),
            label=gold[0] if len(gold) == 1 else None,
            tied=len(gold) > 1,
            extras={"annotators": pandalm_annotations(people)},
        )


PANDALM = PandaLm()


def _vote(verdict: str) -> Vote:
    """Read 0, 1, 2 or Tie; other texts, such as "garbage", are no verdict."""
    found = _BEST.get(verdict.strip().lower(), ())
    return Vote(best=found, order=(0, 1), stop="verdict" if found else "malformed")
