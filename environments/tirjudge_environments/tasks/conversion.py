"""Conversion of dataset rows to tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tirjudge_environments.files.folder import NO_FILES, BadFolder, Folder
from tirjudge_environments.files.placing import shared
from tirjudge_environments.files.reading import read_folder
from tirjudge_environments.orders import letter
from tirjudge_environments.tasks.cells import RowError, is_empty, is_nan, parsed, text_of
from tirjudge_environments.tasks.columns import DEFAULT_COLUMNS, Columns, column_named
from tirjudge_environments.tasks.criteria import read_criteria
from tirjudge_environments.tasks.labels import (
    Label,
    checklist_of,
    gold_scores_of,
    highest,
    read_label,
    winner_columns,
)
from tirjudge_environments.tasks.messages import (
    conversation_of,
    is_chat,
    read_messages,
    read_tools,
    response_of,
)
from tirjudge_environments.tasks.turns import unfolded
from tirjudge_environments.types import Criterion, JudgeTask, Message, Response


def read_task(
    row: Mapping[str, Any],
    *,
    default_id: str,
    columns: Columns = DEFAULT_COLUMNS,
    labels: Mapping[str, str] | None = None,
    beside: Path | None = None,
) -> JudgeTask:
    """Convert a row to a task; raises RowError.

    The prompt is a text or a list of chat messages. A response is a text, a number, or a list of chat
    messages: a transcript if any of them calls a tool or is a tool's result, or if the first of several is
    the assistant's. Any other list repeats the prompt, and its last message counts. Without a prompt, it is
    what all responses begin with; see `turns.unfolded` for chats in the cells of tables.

    A label of several responses is the name of a response's column or source, an index counted from 0, a
    letter, a ranking (`A>B`), or a tie (`tie`, `A=B`: then the task has no best response). The ranking of a
    pair and a tie also give the strength of the preference: `gold["strength"]` is 2 for `A>>B`, 1 for `A>B`,
    and 0 for a tie. The label of a single response is people's judgement of it: `gold["rating"]` is True or
    False for pass or fail (yes or no, true or false), or a number. `labels` translates a dataset's own values
    first, such as {"1": "A", "2": "B", "0": "tie"}; an empty meaning leaves a value out, and any other value
    is an error, unless all meanings are empty.

    NaN, with which tables mark a missing value, is an error in a prompt and in a response, and counts as
    absent elsewhere. Gold scores become `gold["scores"]`; without a label, the response with the unique
    highest gold score is the label. Sources are named by their column, or by the columns of the responses.

    Names of folders and archives in `files` and `prompt_files` are relative to the folder `beside`, see
    `files.read_folder`; without it, a name is an error.
    """
    given, part = _given_responses(row, columns)
    prompt, responses = unfolded(columns.find(row, "prompt"), given)
    candidates = tuple(_responses(responses))
    sources = _sources(row, columns, part, len(candidates))
    label = _label(row, columns, labels, part, sources, len(candidates))
    scores = gold_scores_of(_optional(row, columns, "gold_scores"), len(candidates)) or label.scores
    best = label.best
    if part == "chosen":
        best = 0
    elif best is None and label.strength is None:
        best = highest(scores)
    gold = {
        "checklist": checklist_of(_optional(row, columns, "checklist")),
        "strength": label.strength,
        "rating": label.rating,
        "scores": scores or None,
    }
    own_id, domain = _optional(row, columns, "id"), _optional(row, columns, "domain")
    before, folders = _folders(row, columns, len(candidates), beside)
    return JudgeTask(
        id=default_id if own_id is None or own_id == "" else text_of(own_id, "id"),
        prompt=_prompt(prompt, _system(row, columns)),
        candidates=candidates,
        label=best,
        domain="" if domain is None else text_of(domain, "domain"),
        gold={name: value for name, value in gold.items() if value is not None},
        tags=_tags(_optional(row, columns, "tags")),
        reference=_reference(_optional(row, columns, "reference")),
        criteria=_criteria(_optional(row, columns, "criteria")),
        sources=sources,
        tools=read_tools(_optional(row, columns, "tools")),
        files=folders,
        prompt_files=before,
    )


def _folders(
    row: Mapping[str, Any], columns: Columns, count: int, beside: Path | None
) -> tuple[Folder, tuple[Folder, ...]]:
    """Return the files of the prompt, and those of each response; none if no response has files."""

    def read(value: Any, of: str, before: Folder = NO_FILES) -> Folder:
        try:
            return read_folder(None if is_empty(value) else _files_of(value), beside, before)
        except BadFolder as error:
            raise RowError(f"{of}: {error}") from None

    before = read(_optional(row, columns, "prompt_files"), "prompt_files")
    folders = _files_of(_optional(row, columns, "files"))
    if is_empty(folders):
        return before, ()
    if isinstance(folders, Mapping | str) and count == 1:
        folders = [folders]
    if not isinstance(folders, list) or len(folders) != count:
        raise RowError(
            f"files must be a list of {count} folders, one for each response; --column files= ignores it"
        )
    read_all = [
        read(value, f"files of response {letter(position)}", before) for position, value in enumerate(folders)
    ]
    try:
        before, *read_all = shared([before, *read_all])
    except BadFolder as error:
        raise RowError(f"files: {error}") from None
    return before, tuple(read_all)


def named_folders(row: Mapping[str, Any], task: JudgeTask, columns: Columns) -> dict[str, Folder]:
    """Return the folders and archives that a row names, by these names; `task` is what `read_task` made."""
    pairs = [(_optional(row, columns, "prompt_files"), task.prompt_files)]
    if task.files:
        folders = _files_of(_optional(row, columns, "files"))
        given = folders if isinstance(folders, list) else [folders]
        pairs += zip(given, task.files, strict=True)
    named = ((_files_of(value), folder) for value, folder in pairs)
    return {name: folder for name, folder in named if isinstance(name, str) and name}


def _files_of(value: Any) -> Any:
    """Return the value of a cell: a name, or what JSON in it says; raises RowError for JSON that is cut."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    found = parsed(value)
    if found is None:
        raise RowError(
            'files: text that begins with "[" or "{" must be valid JSON; names of folders do not begin so'
        )
    return found


def _optional(row: Mapping[str, Any], columns: Columns, part: str) -> Any:
    """Return the value of a part that may be absent; NaN is None."""
    value = columns.find(row, part)
    return None if is_nan(value) else value


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if value is not None and not isinstance(value, list):
        raise RowError("tags must be a list of texts")
    return tuple(text_of(tag, "a tag") for tag in value or () if tag != "")


def _system(row: Mapping[str, Any], columns: Columns) -> str:
    """Return the system message that a column of the row has; empty without one."""
    value = _optional(row, columns.model_copy(update={"system": _system_column(row, columns)}), "system")
    if is_empty(value) or (isinstance(value, str) and not value.strip()):
        return ""
    return "\n\n".join(one.content for one in _prompt(value))


def _system_column(row: Mapping[str, Any], columns: Columns) -> str:
    if "system" in columns.model_fields_set:
        return columns.system
    names = (columns.system, "system_prompt", "system_message")
    return next((name for name in names if column_named(row, name) is not None), "")


def unread_columns(row: Mapping[str, Any], columns: Columns) -> list[str]:
    """Return the columns of a row that no part of its task is read from."""
    given = next((part for part in _response_parts(columns) if columns.find(row, part) is not None), "")
    pair = {"response_a": "response_b", "chosen": "rejected"}
    parts = {*Columns.model_fields} - {"responses", "response", *pair, *pair.values()}
    places = [getattr(columns, part) for part in (*parts, given, pair.get(given, "")) if part]
    read = set[str | None]()
    for place in (*places, _system_column(row, columns)):
        whole = column_named(row, place)
        steps = [step.strip().split(".")[0] for step in re.split("[,+]", place)]
        read |= {column_named(row, step) for step in steps} if whole is None else {whole}
    labelled = column_named(row, columns.label) is not None
    return [name for name in row if name not in read and (labelled or not name.lower().startswith("winner"))]


def _prompt(value: Any, system: str = "") -> tuple[Message, ...]:
    if value is None:
        raise RowError("no prompt")
    messages = (
        read_messages(value, "prompt")
        if isinstance(value, list) or conversation_of(value)
        else (Message("user", text_of(value, "prompt")),)
    )
    if not any(message.content.strip() for message in messages):
        raise RowError("the prompt is empty")
    said = (Message("system", system),) if system.strip() else ()
    return messages if said and said[0] in messages else (*said, *messages)


def _given_responses(row: Mapping[str, Any], columns: Columns) -> tuple[list[Any], str]:
    """Return the responses as the row has them, and the part that holds them."""
    for part in _response_parts(columns):
        first = columns.find(row, part)
        if first is None:
            continue
        if part == "responses":
            return _listed(first), part
        if part == "response":
            return [first], part
        if part == "response_a":
            return [first, columns.find(row, "response_b")], part
        rejected = columns.find(row, "rejected")
        several = isinstance(rejected, list) and not is_chat(rejected)
        return [first, *(rejected if several else [rejected])], part
    raise RowError(
        "no responses: a row has `responses`, `response`, `response_a` and `response_b`, or `chosen`"
    )


def _response_parts(columns: Columns) -> list[str]:
    parts = ["responses", "response_a", "chosen", "response"]
    named = [part for part in parts if part in columns.model_fields_set]
    return named or parts


def _listed(value: Any) -> list[Any]:
    value = parsed(value)
    if isinstance(value, Mapping) and len(value) > 1 and all(isinstance(one, str) for one in value.values()):
        return list(value.values())
    if not isinstance(value, list) or not value:
        raise RowError("responses must be a list with at least one response")
    return value


def _responses(values: Iterable[Any]) -> Iterator[Response]:
    for position, value in enumerate(values):
        name = f"response {letter(position)}"
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]  # a list of the only chosen response
        chat = is_chat(value) or conversation_of(value)
        yield response_of(read_messages(value, name)) if chat else text_of(value, name)


def _label(
    row: Mapping[str, Any],
    columns: Columns,
    labels: Mapping[str, str] | None,
    part: str,
    sources: Sequence[str],
    count: int,
) -> Label:
    value = columns.find(row, "label")
    if value is None and "label" not in columns.model_fields_set:
        value = winner_columns(row, count)
    names: list[set[str]] = [{source} for source in sources] or [set() for _ in range(count)]
    pair = {"response_a": ("response_a", "response_b"), "chosen": ("chosen", "rejected")}.get(part, ())
    for own, name in zip(names, pair, strict=False):
        own |= {name, getattr(columns, name)}
    places = [place.strip() for place in columns.responses.split(",")] if part == "responses" else []
    for own, place in zip(names, places if len(places) == count else [], strict=False):
        own.add(place)
    return read_label(value, labels, names)


def _sources(row: Mapping[str, Any], columns: Columns, part: str, count: int) -> tuple[str, ...]:
    """Return the names of the responses' sources; empty if neither a column nor an option names them."""
    named = _optional(row, columns, "sources")
    if named is not None:
        names = parsed(named)
        if not isinstance(names, list) or len(names) != count:
            raise RowError(f"sources must be a list of {count} names, one for each response")
        return tuple(text_of(name, "a source") for name in names)
    given = columns.find(row, part) if part == "responses" else None
    if isinstance(given := parsed(given), Mapping):
        return tuple(map(str, given))
    if part == "responses" and column_named(row, columns.responses) is None:
        places = [place.strip() for place in columns.responses.split(",")]
        return tuple(places) if len(places) == count > 1 else ()
    if part == "response_a" and part in columns.model_fields_set:
        return columns.response_a, columns.response_b
    return ()


def _reference(value: Any) -> str:
    """Return the reference: of a chat its last message, of several answers one in a line, of others JSON."""
    if is_empty(value):
        return ""
    if is_chat(value) or conversation_of(value):
        return read_messages(value, "reference")[-1].content
    if isinstance(value, str) and value.lstrip().startswith("["):
        found = parsed(value)
        value = found if isinstance(found, list) and all(isinstance(one, str) for one in found) else value
    answers = value if isinstance(value, list) else [value]
    text = "\n".join(
        json.dumps(one, ensure_ascii=False) if isinstance(one, Mapping | list) else text_of(one, "reference")
        for one in answers
        if not is_empty(one)
    )
    return text if text.strip() else ""


def _criteria(value: Any) -> tuple[Criterion, ...]:
    if is_empty(value) or (isinstance(value, str) and not value.strip()):
        return ()
    given = parsed(value)
    if isinstance(given, Mapping) or (isinstance(value, str) and not isinstance(given, list)):
        given = [value if given is None else given]
    try:
        return read_criteria(given)
    except ValueError as error:
        raise RowError(str(error)) from None
