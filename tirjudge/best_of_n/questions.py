"""Questions from rows: candidates with the evidence for which of them solve it; JETTS rows too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from tirjudge.best_of_n.base import CandidateSet
from tirjudge.best_of_n.grading import UNGRADED
from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.batch import Failure
from tirjudge.judging.questions import truncated
from tirjudge_environments.instruction_checks import verifiers_of
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task

CheckName = Literal["auto", "instructions", "tests", "math", "recorded", "label", "none"]
_EVIDENCE = {"instructions": "instruction_id_list", "tests": "tests", "math": "answer", "recorded": "solved"}
"""Check to the column that it needs; `auto` takes the first check whose column a row has, then its label."""


def questions(
    rows: Iterable[Row | BadRow],
    *,
    check: CheckName = "auto",
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Iterator[CandidateSet | Failure]:
    """Read every row in order as a question, or as the reason why it is none.

    `most` is the largest number of candidates; later ones are left out. Ids must be unique.
    """
    seen: dict[str, str] = {}
    for row in rows:
        if isinstance(row, BadRow):
            yield Failure(row.where, None, row.reason)
            continue
        try:
            question = _question(row, check, columns, labels, most)
        except ValueError as error:
            yield Failure(row.where, None, str(error))
            continue
        name = question.task.id
        if name in seen:
            yield Failure(row.where, name, f"its id {name!r} was used before, at {seen[name]}")
        else:
            seen[name] = row.where
            yield question


def shown(question: CandidateSet, truncate: int | None) -> CandidateSet:
    """Return the question as the judge sees it, with the middle of long candidates cut out."""
    return replace(question, task=truncated(question.task, truncate))


def _question(
    row: Row, check: CheckName, columns: Columns, labels: Mapping[str, str] | None, most: int | None
) -> CandidateSet:
    fields = unpacked(row.fields)
    task = read_task(fields, default_id=row.default_id, columns=columns, labels=labels)
    name = _check_of(row.fields, fields, task.label) if check == "auto" else check
    missing = task.label is None if name == "label" else fields.get(_EVIDENCE.get(name, "")) is None
    if missing and name != UNGRADED:
        needed = _EVIDENCE.get(name, "a label that names one candidate")
        raise RowError(f"no evidence for which candidates solve it: a row needs {needed}")
    gold = {} if name == UNGRADED else _gold(name, fields, len(task.candidates), task.label)
    if "solved" in gold:
        gold["solved"] = gold["solved"][:most]
    return CandidateSet(
        replace(task, candidates=task.candidates[:most], gold={"check": name, **gold}, label=None), row.where
    )


def _check_of(row: Mapping[str, Any], fields: Mapping[str, Any], label: int | None) -> str:
    """Return the check that a row has columns for; scores of JETTS come before other metadata."""
    if _is_from_jetts(row) and fields["solved"] is not None:
        return "recorded"
    usual = UNGRADED if label is None else "label"
    return next((name for name, column in _EVIDENCE.items() if fields.get(column) is not None), usual)


def _gold(name: str, fields: Mapping[str, Any], count: int, label: int | None) -> dict[str, Any]:
    """Return what a check needs. Raises ValueError for values that it cannot use."""
    if name == "label":
        return {"solved": [float(index == label) for index in range(count)]}
    value = fields[_EVIDENCE[name]]
    match name:
        case "instructions":
            instructions = {"instruction_id_list": value, "kwargs": fields.get("kwargs")}
            verifiers_of(instructions)
            return {"instructions": instructions}
        case "recorded":
            if not isinstance(value, list) or len(value) != count or not all(map(_is_share, value)):
                raise RowError(f"solved must be a list of {count} truth values or numbers from 0 to 1")
            return {"solved": [float(one) for one in value]}
        case "tests":
            return {
                "tests": _text(value, "tests"),
                "entry_point": _text(fields.get("entry_point"), "entry_point"),
            }
    return {"answer": _text(value, "answer")}


def unpacked(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a JETTS row into the columns of tirjudge; BigCodeBench's column `test` is `tests`."""
    if _is_from_jetts(fields):
        fields = _from_jetts(fields, fields["query"])
    if "tests" in fields or "test" not in fields:
        return fields
    return {**fields, "tests": fields["test"]}


def _is_from_jetts(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("query"), Mapping) and "prompt" not in fields


def _from_jetts(fields: Mapping[str, Any], query: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a JETTS row, whose query and responses are objects with a content and metadata."""
    responses = fields.get("responses")
    if not isinstance(responses, list) or not all(isinstance(one, Mapping) for one in responses):
        raise RowError("responses of a JETTS row must be objects with a content and metadata")
    metadata = query.get("metadata")
    scores = [(one.get("metadata") or {}).get("score") for one in responses]
    return {
        **(metadata if isinstance(metadata, Mapping) else {}),
        **{name: value for name, value in fields.items() if name != "query"},
        "prompt": query.get("content"),
        "responses": [one.get("content") for one in responses],
        "solved": None if None in scores else scores,
    }


def _is_share(value: Any) -> bool:
    return isinstance(value, bool | int | float) and 0 <= value <= 1


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"{name} must be a text or a number")
    return str(value)
