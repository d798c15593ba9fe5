"""Checklists for the rationale judge: a model splits people's remarks on two responses into points."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.batch import Failure
from tirjudge.rollout.reward_questions import RewardQuestions
from tirjudge.storage.run_folder import JsonObject
from tirjudge_environments import Malformed, Question
from tirjudge_environments.rationales.decomposition import SIZES, decomposition_ask, read_decomposition
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task

REMARKS = "individual_preference"
"""HelpSteer3's column: a list with `reasoning`, `feedback1` and `feedback2` of each annotator."""

_AT_ONCE = 256
"""Rows whose questions are asked together."""


@dataclass(frozen=True, slots=True)
class RowWithChecklist:
    """A row with its checklist."""

    fields: JsonObject
    """The row's columns and its `checklist`, which is empty if the remarks say nothing specific."""
    kept: bool
    """True if the checklist has one of the requested sizes."""


async def checklists(
    rows: Iterable[Row | BadRow],
    reward_questions: RewardQuestions,
    *,
    columns: Columns = DEFAULT_COLUMNS,
    remarks: str = REMARKS,
    sizes: range = SIZES,
) -> AsyncGenerator[RowWithChecklist | Failure]:
    """Yield every row in order with its checklist, or the reason why it has none.

    `remarks` names the column of people's remarks: HelpSteer3's list, a list of texts, or a text. Raises
    NotAnswered if the model stays unavailable.
    """
    waiting = iter(rows)
    while part := list(islice(waiting, _AT_ONCE)):
        asked = [_question(row, columns, remarks) for row in part]
        answers = await reward_questions.answers(one.ask for one in asked if isinstance(one, _Question))
        for one in asked:
            yield _checked(one, answers, sizes) if isinstance(one, _Question) else one


@dataclass(frozen=True, slots=True)
class _Question:
    row: Row
    ask: Question


def remarks_of(value: Any) -> tuple[str, str]:
    """Return (reasons for a preference, feedback on each response), as in Figure 6. Raises RowError."""
    people = value if isinstance(value, list) else [value]
    parts = [_lines(person, f"Evaluator {number}") for number, person in enumerate(people, 1)]
    summary, evaluation = (
        "\n".join(line for part in parts for line in part[side] if line) for side in (0, 1)
    )
    if not summary:
        raise RowError("the remarks give no reasons for a preference: they are empty")
    return summary, evaluation


def _lines(person: Any, name: str) -> tuple[list[str], list[str]]:
    if isinstance(person, str):
        person = {"reasoning": person}
    if not isinstance(person, Mapping):
        raise RowError("remarks must be texts, or objects with reasoning, feedback1 and feedback2")
    reasoning, *feedback = (person.get(part) or "" for part in ("reasoning", "feedback1", "feedback2"))
    summary = [f"{name}: {reasoning}"] if reasoning else []
    return summary, [f"{name} on Response {i}: {text}" for i, text in enumerate(feedback, 1) if text]


def _question(row: Row | BadRow, columns: Columns, remarks: str) -> _Question | Failure:
    if isinstance(row, BadRow):
        return Failure(row.where, None, row.reason)
    try:
        task = read_task(row.fields, default_id=row.default_id, columns=columns)
        if remarks not in row.fields:
            raise RowError(f"no column {remarks!r} of people's remarks")
        summary, evaluation = remarks_of(row.fields[remarks])
        ask = decomposition_ask(task.prompt, task.candidates, summary=summary, evaluation=evaluation)
    except ValueError as error:
        return Failure(row.where, None, str(error))
    return _Question(row, ask)


def _checked(asked: _Question, answers: Mapping[str, str], sizes: range) -> RowWithChecklist | Failure:
    row, key = asked.row, asked.ask.key
    if key not in answers:
        return Failure(row.where, None, "the model rejected the question")
    read = read_decomposition(answers[key])
    if isinstance(read, Malformed):
        return Failure(row.where, None, f"the answer cannot be read: {read.reason}")
    return RowWithChecklist({**row.fields, "checklist": list(read.claims)}, kept=len(read.claims) in sizes)
