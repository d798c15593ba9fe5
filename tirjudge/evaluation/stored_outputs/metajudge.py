"""RationaleRM's MetaJudge outputs: people's reasons, a judge's, and the model's matching of them."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable, need_list, need_object, shown
from tirjudge_environments import Malformed
from tirjudge_environments.formats.rationale import EVALUATED
from tirjudge_environments.rationales import Matching, match, read_scores

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
        metadata = need_object(row, "metadata")
        judges = [key for key in metadata if key.endswith(_SUFFIX) and key != _PEOPLE]
        if len(judges) != 1:
            raise Unreadable(
                f"the metadata needs one judge's checklist, and has {', '.join(judges) or 'none'}"
            )
        people, reasons = (need_list(metadata, name) for name in (_PEOPLE, judges[0]))
        samples = need_list(row, "samples")
        first = samples[0] if samples else {"generated_text": ""}
        if not isinstance(first, dict) or not isinstance(first.get("generated_text"), str):
            raise Unreadable(f"samples holds {shown(first)}, not an object with a text 'generated_text'")
        matching = _matching(first["generated_text"], humans=len(people), reasons=len(reasons))
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
