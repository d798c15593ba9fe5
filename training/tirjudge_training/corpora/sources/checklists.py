"""HelpSteer3 with annotators' remarks decomposed into checklists (Rationale, section 2.1 and App. A.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import Malformed
from tirjudge_environments.rationales import SIZES, decomposition_ask, read_decomposition
from tirjudge_sandbox import Sandbox
from tirjudge_training.corpora.base import ChatTurn, Sampler, Skipped, Source, SourceCard, SourceItem

LABELS = {-3: "A>>B", -2: "A>>B", -1: "A>B", 0: "A=B", 1: "B>A", 2: "B>>A", 3: "B>>A"}
"""The five verdicts by the dataset's seven preferences (ours: the paper does not give the mapping)."""


class Remark(BaseModel):
    """One annotator's remarks."""

    reasoning: str | None = None
    feedback1: str | None = None
    feedback2: str | None = None


class HelpSteer3ChecklistRow(BaseModel):
    """A row of HelpSteer3's preferences, with the annotators' remarks."""

    context: list[ChatTurn]
    response1: str
    response2: str
    overall_preference: int
    individual_preference: list[Remark]


class HelpSteer3Checklists(Source[HelpSteer3ChecklistRow]):
    """Has a generator decompose the remarks (Fig. 6) and keeps checklists of 3 to 7 points."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="nvidia/HelpSteer3",
        parts=(("preference", "train"),),
        domain="helpfulness",
        about="annotators' remarks decomposed into 3 to 7 points, with the preference in five steps",
        licence="CC-BY-4.0",
        needs=frozenset({"generators"}),
    )

    def question(self, row: HelpSteer3ChecklistRow) -> SourceItem | Skipped:
        summary, evaluation = _texts(row.individual_preference)
        if not summary:
            return Skipped("no remarks")
        if row.overall_preference not in LABELS:
            return Skipped("no preference from -3 to 3")
        return SourceItem(
            prompt=tuple(turn.message for turn in row.context),
            row={"responses": [row.response1, row.response2], "label": LABELS[row.overall_preference]},
            known={"summary": summary, "evaluation": evaluation},
        )

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        row = dict(question.row or {})
        ask = decomposition_ask(question.prompt, row["responses"], **question.known)
        for answer in await sampler.answers(ask.key, ask.prompt.messages):
            found = read_decomposition(answer.text)
            if not isinstance(found, Malformed):
                return _with_checklist(question, row, found.claims)
        return Skipped("a decomposition that cannot be read")


def _texts(remarks: Sequence[Remark]) -> tuple[str, str]:
    """Return the reasons for the preference and the feedback on each response, as in Figure 6."""
    summary, evaluation = [], []
    for number, one in enumerate(remarks, 1):
        if one.reasoning:
            summary.append(f"Evaluator {number}: {one.reasoning}")
        for response, text in enumerate((one.feedback1, one.feedback2), 1):
            if text:
                evaluation.append(f"Evaluator {number} on Response {response}: {text}")
    return "\n".join(summary), "\n".join(evaluation)


def _with_checklist(question: SourceItem, row: JsonObject, claims: Sequence[str]) -> SourceItem | Skipped:
    if len(claims) not in SIZES:
        return Skipped(f"a checklist with fewer than {SIZES.start} or more than {SIZES.stop - 1} points")
    return replace(question, row={**row, "checklist": list(claims)})
