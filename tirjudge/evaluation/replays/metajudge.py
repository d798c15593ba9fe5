"""RationaleRM's MetaJudge outputs: people's reasons, a judge's, and the model's answer that matches them."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import Judged
from tirjudge.evaluation.replays.base import Fields, Unreadable
from tirjudge_environments import Malformed
from tirjudge_environments.formats.rationale import EVALUATED
from tirjudge_environments.rationales.matching import Matching, match, read_scores

_PEOPLE = "human-checklist"
_SUFFIX = "-checklist"


class MetaJudgeOutputs:
    """`samples[0].generated_text` is read as the reward of the format rationale reads it, one to one."""

    name = "metajudge"
    about = "Qwen/RationaleRM: outputs of metajudge_infer.py"
    benchmark = "helpsteer3-atomic"
    protocols = ("rationale-consistency",)

    def recognises(self, row: Fields) -> bool:
        metadata = row.get("metadata")
        return "samples" in row and isinstance(metadata, dict) and _PEOPLE in metadata

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[Judged]:
        told = row["metadata"]
        judges = [key for key in told if key.endswith(_SUFFIX) and key != _PEOPLE]
        if len(judges) != 1:
            raise Unreadable(f"one judge's checklist is needed, and these are {', '.join(judges) or 'none'}")
        answer = row["samples"][0]["generated_text"] if row["samples"] else ""
        matching = _matching(answer, humans=len(told[_PEOPLE]), reasons=len(told[judges[0]]))
        yield Judged(
            id=default_id,
            votes=(),
            domain=str(told.get("domain") or ""),
            extras={
                "recall": None if matching is None else matching.recall,
                "average precision": None if matching is None else matching.average_precision,
            },
        )


def _matching(answer: str, *, humans: int, reasons: int) -> Matching | None:
    """Of the judge's first five reasons; None for an answer that cannot be read."""
    scores = read_scores(answer, humans=humans, reasons=reasons)
    if isinstance(scores, Malformed):
        return None
    counted = min(reasons, EVALUATED)
    return match([row[:counted] for row in scores], counted)
