"""RationaleRM's MetaJudge outputs: people's reasons, a judge's, and the model's matching of them."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable
from tirjudge_environments import Malformed
from tirjudge_environments.formats.rationale import EVALUATED
from tirjudge_environments.rationales.matching import Matching, match, read_scores

_PEOPLE = "human-checklist"
_SUFFIX = "-checklist"


class MetaJudgeOutputs:
    """Reads `samples[0].generated_text` as the reward of the format rationale does, matched one to one."""

    name = "metajudge"
    about = "Qwen/RationaleRM: outputs of metajudge_infer.py"
    benchmark = "helpsteer3-atomic"
    protocols = ("rationale-consistency",)

    def recognises(self, row: Fields) -> bool:
        metadata = row.get("metadata")
        return "samples" in row and isinstance(metadata, dict) and _PEOPLE in metadata

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        metadata = row["metadata"]
        judges = [key for key in metadata if key.endswith(_SUFFIX) and key != _PEOPLE]
        if len(judges) != 1:
            raise Unreadable(
                f"the metadata needs one judge's checklist, and has {', '.join(judges) or 'none'}"
            )
        answer = row["samples"][0]["generated_text"] if row["samples"] else ""
        matching = _matching(answer, humans=len(metadata[_PEOPLE]), reasons=len(metadata[judges[0]]))
        yield JudgedRow(
            id=default_id,
            votes=(),
            domain=str(metadata.get("domain") or ""),
            extras={
                "recall": None if matching is None else matching.recall,
                "average precision": None if matching is None else matching.average_precision,
            },
        )


META_JUDGE_OUTPUTS = MetaJudgeOutputs()


def _matching(answer: str, *, humans: int, reasons: int) -> Matching | None:
    """Match the judge's first five reasons; None for an answer that cannot be read."""
    scores = read_scores(answer, humans=humans, reasons=reasons)
    if isinstance(scores, Malformed):
        return None
    counted = min(reasons, EVALUATED)
    return match([row[:counted] for row in scores], counted)
