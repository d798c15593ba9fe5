"""Questions as Python programs ask them, and rows, as tasks: checked, named and shortened."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from tirjudge_environments import Criterion, JudgeTask
from tirjudge_environments.messages import whole_text, with_short_contents
from tirjudge_environments.quoting import cut_middle
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task
from tirjudge_environments.tasks.cells import plain
from tirjudge_environments.tasks.messages import conversation_of, is_chat
from tirjudge_environments.turn_reader import without_thinking
from tirjudge_environments.types import Response, derive_seed

Kind = Literal["pointwise", "pairwise", "listwise"]
FAMILIES = ("tir", "checks")
"""Families of formats with a member for each kind of rows, such as `checks-pairwise`."""
Conversation = str | Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""A text, or a conversation in any form that `tasks.messages.read_messages` reads."""
Criteria = Sequence[str | Mapping[str, Any] | Criterion]
"""Texts, or mappings with `text` and, optionally, `weight`, `polarity` and `must_have`."""


def question(
    prompt: Conversation, responses: Mapping[str, Conversation], criteria: Criteria | None, reference: str
) -> JudgeTask:
    """Return the question on responses, which have the names that messages use.

    Raises TypeError for arguments that are no texts, and ValueError for an invalid prompt or criterion.
    """
    row: dict[str, Any] = {"prompt": _conversation(prompt, "prompt")}
    row["responses"] = [_conversation(response, name) for name, response in responses.items()]
    if not isinstance(reference, str):
        raise TypeError(f"reference must be a text, not {_named(reference)}")
    row["reference"] = reference
    if criteria is not None:
        row["criteria"] = _listed(criteria)
    return read_question(row)


def listed_rows(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows as a list, also those of a table of pandas, polars or pyarrow; raises TypeError."""
    table: Any = rows
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if callable(getattr(table, method, None)):
            return list(getattr(table, method)())
    if callable(getattr(table, "to_dict", None)) and hasattr(table, "columns"):
        return list(table.to_dict("records"))
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"rows must be a list of mappings, not {type(rows).__name__}")
    return list(rows)


def numbered(responses: Sequence[Conversation], name: str = "responses") -> dict[str, Conversation]:
    """Return the responses by the names that messages use; raises TypeError for a single text."""
    if isinstance(responses, str | bytes | Mapping) or not isinstance(responses, Iterable):
        raise TypeError(f"{name} must be a list of texts, not {_named(responses)}")
    return {f"{name}[{index}]": response for index, response in enumerate(responses)}


def read_question(
    row: Mapping[str, Any],
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
    *,
    default_id: str = "",
    beside: Path | None = None,
) -> JudgeTask:
    """Return the task of a row; raises RowError. `beside`: see `read_task`.

    The order shown and every draw depend on the id. A row without an id gets `default_id`, or else one from
    its text, so that the same question gets the same answer, alone and in a batch.
    """
    if not isinstance(row, Mapping):
        raise RowError(f"a row is a mapping with a prompt and responses, not {type(row).__name__}")
    task = read_task(row, default_id=default_id, columns=columns, labels=labels, beside=beside)
    if task.id:
        return task
    prompt = columns.find(row, "prompt")
    # A prompt that is no chat is a text, or a number that stands for its text.
    asked = prompt if isinstance(prompt, list) else str(prompt)
    files = [folder.digest for folder in (*task.files, task.prompt_files) if folder.files]
    return replace(task, id=f"{derive_seed(repr(asked), *map(whole_text, task.candidates), *files):08x}")


def kind_for(task: JudgeTask) -> Kind:
    """Return the kind for a number of responses: one is scored, two are a pair, more are a list."""
    match len(task.candidates):
        case 1:
            return "pointwise"
        case 2:
            return "pairwise"
        case _:
            return "listwise"


def format_for(format: str, kind: Kind, trained: Collection[str] = ()) -> str:
    """Return the name of the format that judges rows of a kind, as result rows have it.

    `format` is the option of the judge: a format, a family, or empty for TIR-Judge's format, which rows call
    by their kind, unless a model was `trained` for the checks of this kind and not for TIR-Judge's format.
    """
    if format in FAMILIES:
        return f"{format}-{kind}"
    checks = f"checks-{kind}"
    return format or (checks if checks in trained and f"tir-{kind}" not in trained else kind)


def environment_name(format: str) -> str:
    """Return the name of the judge format that result rows call `format`: a kind is TIR-Judge's format."""
    return f"tir-{format}" if format in get_args(Kind) else format


def kind_of(task: JudgeTask, kind: Kind | None) -> Kind:
    """Return the requested kind; raises RowError if the row has another number of responses."""
    count = len(task.candidates)
    if kind == "pairwise" and count != 2:
        raise RowError(f"a pair has 2 responses, this row has {count}")
    if kind == "listwise" and count < 3:
        raise RowError(f"a list has 3 responses or more, this row has {count}")
    return kind or kind_for(task)


def truncated(task: JudgeTask, limit: int | None, *, thinking: bool = True) -> JudgeTask:
    """Return the task with responses and a reference of over `limit` characters cut in the middle.

    In a transcript each content is cut. With `thinking` False, the thinking at the start of responses is left
    out first, see `without_thinking`. Returns the same task if nothing is left out.
    """
    if not thinking:
        answers = tuple(map(_answer, task.candidates))
        task = task if answers == task.candidates else replace(task, candidates=answers)
    if limit is None:
        return task
    shortened = tuple(with_short_contents(response, limit) for response in task.candidates)
    short = replace(task, candidates=shortened, reference=cut_middle(task.reference, limit))
    return task if short == task else short


def _answer(response: Response) -> Response:
    if isinstance(response, str):
        return without_thinking(response)
    return tuple(
        replace(one, content=without_thinking(one.content)) if one.role == "assistant" else one
        for one in response
    )


def _conversation(said: Conversation, name: str) -> Any:
    """Return a prompt or a response; raises TypeError for anything but a text and a conversation."""
    held = plain(said)
    if isinstance(held, str) or is_chat(held) or conversation_of(held):
        return held
    raise TypeError(
        f"{name} must be a text or a list of chat messages with role and content, not {_named(said)}"
    )


def _listed(criteria: Criteria) -> list[Any]:
    """Return the criteria as a list; raises TypeError for a single text."""
    if isinstance(criteria, str | bytes | Mapping) or not isinstance(criteria, Iterable):
        raise TypeError(f"criteria must be a list of texts or mappings, not {_named(criteria)}")
    return list(criteria)


def _named(value: object) -> str:
    if value is None:
        return "None"
    return "a single text" if isinstance(value, str) else type(value).__name__
