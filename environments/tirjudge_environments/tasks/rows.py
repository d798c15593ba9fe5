"""Conversion of dataset rows to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tirjudge_environments.orders import letter
from tirjudge_environments.tasks.cells import RowError, is_empty, is_nan, parsed, text_of
from tirjudge_environments.tasks.columns import DEFAULT_COLUMNS, Columns
from tirjudge_environments.tasks.criteria import read_criteria
from tirjudge_environments.tasks.labels import gold_of, gold_scores_of, highest, label_of, label_text
from tirjudge_environments.tasks.messages import is_chat, read_messages, read_tools, response_of
from tirjudge_environments.types import Criterion, JudgeTask, Message, Response


def read_task(
    row: Mapping[str, Any],
    *,
    default_id: str,
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
) -> JudgeTask:
    """Convert a row to a task; raises RowError.

    The prompt is a text or a list of chat messages. A response is a text, a number, or a list of chat
    messages: a transcript if any of them calls a tool or is a tool's result, or if the first of several is
    the assistant's. Any other list repeats the prompt, and its last message counts. A label is an index
    counted from 0, a letter, a ranking (`A>B`), or a tie (`tie`, `A=B`: then the task has no best response).
    The ranking of a pair and a tie also give the strength of the preference: `gold["strength"]` is 2 for
    `A>>B`, 1 for `A>B`, 0 for a tie. `labels` translates a dataset's own values first, such as
    {"1": "A", "2": "B", "0": "tie"}; any other value is an error. NaN, with which tables mark a missing
    value, is an error in a prompt and in a response, and counts as absent elsewhere. Gold scores become
    `gold["scores"]`; without a label, the response with the unique highest gold score is the label. Sources
    are named by their column, or by the columns of the responses.
    """
    candidates, label, part = _candidates(row, columns)
    said = label_text(_optional(row, columns, "label"), labels)
    scores = gold_scores_of(_optional(row, columns, "gold_scores"), len(candidates))
    if label is None:
        label = label_of(said, len(candidates)) if said else highest(scores)
    domain = _optional(row, columns, "domain")
    return JudgeTask(
        id=_id(_optional(row, columns, "id"), default_id),
        prompt=_prompt(columns.find(row, "prompt")),
        candidates=candidates,
        label=label,
        domain="" if domain is None else text_of(domain, "domain"),
        gold=gold_of(_optional(row, columns, "checklist"), said) | ({"scores": scores} if scores else {}),
        tags=_tags(_optional(row, columns, "tags")),
        reference=_reference(_optional(row, columns, "reference")),
        criteria=_criteria(_optional(row, columns, "criteria")),
        sources=_sources(row, columns, part, len(candidates)),
        tools=read_tools(_optional(row, columns, "tools")),
    )


def _optional(row: Mapping[str, Any], columns: Columns, part: str) -> Any:
    """Return the value of a part that may be absent; NaN is None."""
    value = columns.find(row, part)
    return None if is_nan(value) else value


def _id(value: Any, default: str) -> str:
    return default if value is None or value == "" else text_of(value, "id")


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if value is not None and not isinstance(value, list):
        raise RowError("tags must be a list of texts")
    return tuple(text_of(tag, "a tag") for tag in value or () if tag != "")


def _prompt(value: Any) -> tuple[Message, ...]:
    if value is None:
        raise RowError("no prompt")
    messages = (
        read_messages(value, "prompt")
        if isinstance(value, list)
        else (Message("user", text_of(value, "prompt")),)
    )
    if not any(message.content.strip() for message in messages):
        raise RowError("the prompt is empty")
    return messages


def _candidates(row: Mapping[str, Any], columns: Columns) -> tuple[tuple[Response, ...], int | None, str]:
    """Return the responses, the label if their columns determine it, and the part that holds them."""
    for part in _response_parts(columns):
        first = columns.find(row, part)
        if first is None:
            continue
        if part == "responses":
            return tuple(_responses(_listed(first))), None, part
        if part == "response":
            return tuple(_responses([first])), None, part
        if part == "response_a":
            return tuple(_responses([first, columns.find(row, "response_b")])), None, part
        rejected = columns.find(row, "rejected")
        several = isinstance(rejected, list) and not is_chat(rejected)
        return tuple(_responses([first, *(rejected if several else [rejected])])), 0, part
    raise RowError(
        "no responses: a row has `responses`, `response`, `response_a` and `response_b`, or `chosen`"
    )


def _response_parts(columns: Columns) -> list[str]:
    parts = ["responses", "response_a", "chosen", "response"]
    named = [part for part in parts if part in columns.model_fields_set]
    return named or parts


def _listed(value: Any) -> list[Any]:
    value = parsed(value)
    if not isinstance(value, list) or not value:
        raise RowError("responses must be a list with at least one response")
    return value


def _responses(values: Iterable[Any]) -> Iterator[Response]:
    for position, value in enumerate(values):
        name = f"response {letter(position)}"
        yield response_of(read_messages(value, name)) if is_chat(value) else text_of(value, name)


def _sources(row: Mapping[str, Any], columns: Columns, part: str, count: int) -> tuple[str, ...]:
    """Return the names of the responses' sources; empty if neither a column nor an option names them."""
    named = _optional(row, columns, "sources")
    if named is not None:
        names = parsed(named)
        if not isinstance(names, list) or len(names) != count:
            raise RowError(f"sources must be a list of {count} names, one for each response")
        return tuple(text_of(name, "a source") for name in names)
    if part == "responses" and columns.responses not in row:
        places = [place.strip() for place in columns.responses.split(",")]
        return tuple(places) if len(places) == count > 1 else ()
    if part == "response_a" and part in columns.model_fields_set:
        return columns.response_a, columns.response_b
    return ()


def _reference(value: Any) -> str:
    """Return the reference answer, of a chat its last message; empty if there is none."""
    if value is None:
        return ""
    text = read_messages(value, "reference")[-1].content if is_chat(value) else text_of(value, "reference")
    return text if text.strip() else ""


def _criteria(value: Any) -> tuple[Criterion, ...]:
    if is_empty(value):
        return ()
    try:
        return read_criteria(parsed(value))
    except ValueError as error:
        raise RowError(str(error)) from None
