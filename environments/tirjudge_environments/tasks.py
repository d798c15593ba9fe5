"""Conversion of dataset rows to tasks, their criteria included."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict

from tirjudge_environments.messages import is_transcript
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.types import Criterion, JudgeTask, Message, Response, ToolCall, ToolSpec

_ROLES: Mapping[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""Role in a row to role of a message."""
_TIE = re.compile(r"tie|[A-Z]+(=[A-Z]+)+", re.IGNORECASE)
_RANKING = re.compile(r"[A-Z]+(>{1,2}[A-Z]+)+|[A-Z]+(<{1,2}[A-Z]+)+", re.IGNORECASE)
_PAIR = re.compile(r"[A-Z]+(>{1,2}|<{1,2})[A-Z]+", re.IGNORECASE)
_MISSING = object()
_LARGEST_SCORE = 1e9
_FIELDS = tuple(field.name for field in fields(Criterion))
_POLARITIES = ("positive", "negative")
_MOST_CRITERIA = 100
"""Criteria of one row: each is a dialogue for every view."""
LARGEST_WEIGHT = 1e9


class RowError(ValueError):
    """A row that cannot be converted to a task; the message names the column and the problem in one line."""


class ColumnPlaces(BaseModel):
    """The places in a row that hold the parts of something, one field for each part.

    A place is the name of a column. Dots reach into nested columns, and numbers into lists:
    `messages.0.content`, `messages.-1.content`. `a+b` joins texts with an empty line, without empty texts;
    `a,b,c` lists places. If the row has a column of exactly this name, that column is taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset()
    """Parts that an empty place leaves out, whatever columns a row has."""

    @classmethod
    def parse(cls, assignments: Iterable[str]) -> Self:
        """Parse `part=place` texts; raises ValueError for an unknown part or an empty place."""
        places: dict[str, str] = {}
        for assignment in assignments:
            part, _, place = assignment.partition("=")
            if part not in cls.model_fields or not (place or part in cls.MAY_BE_LEFT_OUT):
                raise ValueError(
                    f"{assignment!r} is no mapping: write PART=COLUMN, PART being one of "
                    f"{', '.join(cls.model_fields)}"
                )
            places[part] = place
        return cls(**places)

    def find(self, row: Mapping[str, Any], part: str) -> Any:
        """Return the value of a part, or None if it is absent.

        Raises RowError if the place was set explicitly and is absent.
        """
        place = getattr(self, part)
        if not place and part in self.MAY_BE_LEFT_OUT:
            return None
        value = _lookup(row, place)
        if value is _MISSING and part in self.model_fields_set:
            raise RowError(f"no column {place!r} (named as {part})")
        return None if value is _MISSING else value


class Columns(ColumnPlaces):
    """The places in a row that hold the parts of a task.

    The responses are `responses` (a list), or `response_a` and `response_b`, or `chosen` and `rejected`
    (one or a list; the label is then the chosen one), or `response` alone: the first of these columns
    that the row has, or the column that was named.
    """

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"reference", "criteria", "sources", "tools"})

    id: str = "id"
    """The row's name in results; without it, rows are numbered."""
    prompt: str = "prompt"
    """The question: a text, or a list of chat messages."""
    responses: str = "responses"
    response_a: str = "response_a"
    response_b: str = "response_b"
    chosen: str = "chosen"
    rejected: str = "rejected"
    response: str = "response"
    label: str = "label"
    domain: str = "domain"
    """`safety`, `helpfulness`, `math`, ...: some rewards and prompts depend on it."""
    tags: str = "tags"
    """Free labels that result rows repeat."""
    checklist: str = "checklist"
    """People's reasons for the label, a list of texts."""
    gold_scores: str = "gold_scores"
    """The gold score of each response, a list of numbers, such as GPT-4's scores in JudgeLM-100K."""
    reference: str = "reference"
    """A reference answer that the judge is shown."""
    criteria: str = "criteria"
    """Criteria that the responses are judged by: texts, or objects with text, weight, polarity and
    must_have."""
    sources: str = ""
    """Names of the responses' sources, a list: `model_a,model_b`. Without them, the names of the columns
    that hold one response each: `responses=gpt_answer,claude_answer`."""
    tools: str = "tools"
    """Tools that were offered for the responses, a list in OpenAI's form, which the judge is shown."""


DEFAULT_COLUMNS = Columns()


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
    said = _label_text(_optional(row, columns, "label"), labels)
    scores = _gold_scores(_optional(row, columns, "gold_scores"), len(candidates))
    if label is None:
        label = _label(said, len(candidates)) if said else _highest(scores)
    domain = _optional(row, columns, "domain")
    return JudgeTask(
        id=_id(_optional(row, columns, "id"), default_id),
        prompt=_prompt(columns.find(row, "prompt")),
        candidates=candidates,
        label=label,
        domain="" if domain is None else _text(domain, "domain"),
        gold=_gold(_optional(row, columns, "checklist"), said) | ({"scores": scores} if scores else {}),
        tags=_tags(_optional(row, columns, "tags")),
        reference=_reference(_optional(row, columns, "reference")),
        criteria=_criteria(_optional(row, columns, "criteria")),
        sources=_sources(row, columns, part, len(candidates)),
        tools=_tools(_optional(row, columns, "tools")),
    )


def _optional(row: Mapping[str, Any], columns: Columns, part: str) -> Any:
    """Return the value of a part that may be absent; NaN is None."""
    value = columns.find(row, part)
    return None if _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _lookup(row: Mapping[str, Any], place: str) -> Any:
    if place in row:
        return row[place]
    if "," in place:
        return _together(row, place.split(","))
    if "+" in place:
        values = _together(row, place.split("+"))
        return values if values is _MISSING else _join(values, place)
    value: Any = row
    for step in place.split("."):
        value = _step(value, step)
    return value


def _together(row: Mapping[str, Any], places: Iterable[str]) -> Any:
    values = [_lookup(row, place.strip()) for place in places]
    return _MISSING if any(value is _MISSING for value in values) else values


def _join(values: Iterable[Any], place: str) -> str:
    texts = [_text(value, place) for value in values if value is not None]
    return "\n\n".join(text for text in texts if text.strip())


def _step(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(step, _MISSING)
    if isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,9}", step):
        index = int(step)
        return value[index] if -len(value) <= index < len(value) else _MISSING
    return _MISSING


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
        several = isinstance(rejected, list) and not _is_chat(rejected)
        return tuple(_responses([first, *(rejected if several else [rejected])])), 0, part
    raise RowError(
        "no responses: a row has `responses`, `response`, `response_a` and `response_b`, or `chosen`"
    )


def _response_parts(columns: Columns) -> list[str]:
    parts = ["responses", "response_a", "chosen", "response"]
    named = [part for part in parts if part in columns.model_fields_set]
    return named or parts


def _sources(row: Mapping[str, Any], columns: Columns, part: str, count: int) -> tuple[str, ...]:
    """Return the names of the responses' sources; empty if neither a column nor an option names them."""
    named = _optional(row, columns, "sources")
    if named is not None:
        names = _parsed(named)
        if not isinstance(names, list) or len(names) != count:
            raise RowError(f"sources must be a list of {count} names, one for each response")
        return tuple(_text(name, "a source") for name in names)
    if part == "responses" and columns.responses not in row:
        places = [place.strip() for place in columns.responses.split(",")]
        return tuple(places) if len(places) == count > 1 else ()
    if part == "response_a" and part in columns.model_fields_set:
        return columns.response_a, columns.response_b
    return ()


def _listed(value: Any) -> list[Any]:
    value = _parsed(value)
    if not isinstance(value, list) or not value:
        raise RowError("responses must be a list with at least one response")
    return value


def _reference(value: Any) -> str:
    """Return the reference answer, of a chat its last message; empty if there is none."""
    if value is None:
        return ""
    text = _messages(value, "reference")[-1].content if _is_chat(value) else _text(value, "reference")
    return text if text.strip() else ""


def _criteria(value: Any) -> tuple[Criterion, ...]:
    if _is_empty(value):
        return ()
    try:
        return read_criteria(_parsed(value))
    except ValueError as error:
        raise RowError(str(error)) from None


def _is_empty(value: Any) -> bool:
    """Return True for a value that is missing, also as the empty cell of a table."""
    return value is None or value == ""


def _parsed(value: Any) -> Any:
    """Return what a table's cell holds as JSON; None for a text that is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _responses(values: Iterable[Any]) -> Iterator[Response]:
    for position, value in enumerate(values):
        name = f"response {letter(position)}"
        yield _said(_messages(value, name)) if _is_chat(value) else _text(value, name)


def _said(messages: tuple[Message, ...]) -> Response:
    several = len(messages) > 1 and messages[0].role == "assistant"
    return messages if several or is_transcript(messages) else messages[-1].content


def _prompt(value: Any) -> tuple[Message, ...]:
    if value is None:
        raise RowError("no prompt")
    messages = (
        _messages(value, "prompt") if isinstance(value, list) else (Message("user", _text(value, "prompt")),)
    )
    if not any(message.content.strip() for message in messages):
        raise RowError("the prompt is empty")
    return messages


def _is_chat(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _messages(value: list[Any], name: str) -> tuple[Message, ...]:
    return tuple(_message(item, f"{name}, message {number}") for number, item in enumerate(value, 1))


def _message(value: Any, name: str) -> Message:
    role = _ROLES.get(str(value.get("role"))) if isinstance(value, Mapping) else None
    if role is None:
        raise RowError(f"{name}: not a chat message with a role of {', '.join(_ROLES)} and a content")
    content, given = value.get("content"), value.get("tool_calls")
    if given and (role != "assistant" or not isinstance(given, list)):
        raise RowError(f"{name}: tool_calls must be a list in a message of the assistant")
    calls = tuple(_call(call, f"{name}, call {number}") for number, call in enumerate(given or (), 1))
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        content = "".join(_text(part, f"{name}, content") for part in parts)
    # OpenAI's form has null next to calls, and some tools have no result.
    if content is None and (calls or role == "tool"):
        content = ""
    return Message(
        role,
        _text(content, f"{name}, content"),
        calls,
        _word(value, "tool_call_id", name) if role == "tool" else "",
        _word(value, "name", name),
    )


def _call(value: Any, name: str) -> ToolCall:
    """Return a call in OpenAI's form, or without the wrapper `function`; arguments may be an object."""
    called = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(called, Mapping) or not isinstance(called.get("name"), str):
        raise RowError(f"{name}: not a tool call with a function that has a name and arguments")
    arguments = called.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(_word(value, "id", name), called["name"], _text(arguments, f"{name}, arguments"))


def _word(value: Mapping[str, Any], key: str, name: str) -> str:
    """Return a text that may be absent; empty if it is."""
    found = value.get(key)
    return "" if found is None else _text(found, f"{name}, {key}")


def _tools(value: Any) -> tuple[ToolSpec, ...]:
    if value is None or value == "":  # an empty cell of a table
        return ()
    found = _parsed(value)
    if not isinstance(found, list):
        raise RowError("tools must be a list of tools in OpenAI's form, or empty (--columns tools=)")
    return tuple(_tool(tool, f"tool {number}") for number, tool in enumerate(found, 1))


def _tool(value: Any, name: str) -> ToolSpec:
    """Return a tool in OpenAI's form, or without the wrapper `function`."""
    tool = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
        raise RowError(f"{name}: not an object with a name, a description and parameters")
    parameters = tool.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise RowError(f"{name}, parameters: {_kind(parameters)}, not a JSON schema")
    return ToolSpec(tool["name"], _word(tool, "description", name), dict(parameters))


def _text(value: Any, name: str) -> str:
    """Return a text; numbers and truth values become text as Python prints them, as datasets hold them."""
    if isinstance(value, str):
        return value
    if _is_nan(value):
        raise RowError(f"{name} is NaN, a missing value")
    if isinstance(value, bool | int | float):
        return str(value)
    raise RowError(f"{name} is {_kind(value)}, not a text")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "missing"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
        case str():
            return "a text"
        case int() | float():
            return "a number"
    # Parquet has dates, decimal numbers and bytes too.
    return f"of the type {type(value).__name__}"


def _id(value: Any, default: str) -> str:
    return default if value is None or value == "" else _text(value, "id")


def _tags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if value is not None and not isinstance(value, list):
        raise RowError("tags must be a list of texts")
    return tuple(_text(tag, "a tag") for tag in value or () if tag != "")


def _label_text(value: Any, labels: Mapping[str, str] | None) -> str:
    """Return the label after translation by `labels`; empty if there is none."""
    if value is None or value == "":
        return ""
    text = _text(value, "label").strip()
    if labels is None:
        return text
    # Tables with missing values hold whole numbers as floats: `1.0`.
    if text not in labels and re.fullmatch(r"-?[0-9]{1,9}\.0", text):
        text = text.removesuffix(".0")
    if text not in labels:
        raise RowError(f"label {text!r} is none of {', '.join(labels)}")
    return labels[text]


def _label(text: str, count: int) -> int | None:
    if not text or text.lower() == "tie":
        return None
    if _TIE.fullmatch(text) and _name_different(text.upper().split("="), count):
        return None
    best = _best(text, count)
    if best is None:
        last = letter(count - 1)
        raise RowError(
            f"label {text!r} is no index from 0 to {count - 1}, no letter from A to {last}, no A>B"
        )
    return best


def _gold(checklist: Any, label: str) -> dict[str, Any]:
    gold: dict[str, Any] = {}
    if not _is_empty(checklist):
        points = _parsed(checklist)
        if not isinstance(points, list):
            raise RowError("checklist must be a list of texts")
        gold["checklist"] = tuple(_text(point, "a point of the checklist") for point in points)
    if _TIE.fullmatch(label) or _PAIR.fullmatch(label):
        gold["strength"] = max(label.count(">"), label.count("<"))
    return gold


def _gold_scores(value: Any, count: int) -> tuple[float, ...]:
    """Return the gold scores; empty if there are none."""
    if _is_empty(value):
        return ()
    scores = _parsed(value)
    if not isinstance(scores, list) or len(scores) != count or not all(map(_is_score, scores)):
        raise RowError(f"gold_scores must be a list of {count} numbers, one for each response")
    return tuple(float(score) for score in scores)


def _is_score(value: Any) -> bool:
    """Return True for a finite number that fits a float."""
    # NaN and infinity fail the comparison.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_SCORE


def _highest(scores: Sequence[float]) -> int | None:
    top = [index for index, score in enumerate(scores) if score == max(scores)]
    return top[0] if len(top) == 1 else None


def _best(text: str, count: int) -> int | None:
    # Tables with missing values hold whole numbers as floats: `1.0`.
    if re.fullmatch(r"[0-9]{1,9}(\.0)?", text):
        index = int(text.removesuffix(".0"))
        return index if index < count else None
    names = re.split("[<>]+", text.upper()) if _RANKING.fullmatch(text) else [text.upper()]
    if not _name_different(names, count):
        return None
    return letters(count).index(names[-1 if "<" in text else 0])


def _name_different(names: Sequence[str], count: int) -> bool:
    """Return True if the names are letters of `count` responses, each of another response."""
    return set(names) <= set(letters(count)) and len(set(names)) == len(names)


def read_criteria(value: Any) -> tuple[Criterion, ...]:
    """Return the criteria of a row; raises ValueError, in one line that names the criterion.

    A criterion is a text, or an object with `text` and, optionally, `weight` (0 or more, 1 by default),
    `polarity` (`positive` or `negative`) and `must_have`. The weights add up to more than 0, and no text
    occurs twice.
    """
    if not isinstance(value, list | tuple):
        raise ValueError("criteria must be a list of texts or objects")
    if not value:
        raise ValueError("criteria is an empty list: leave it out, or give at least one criterion")
    if len(value) > _MOST_CRITERIA:
        raise ValueError(f"criteria has {len(value)} entries: a row has at most {_MOST_CRITERIA}")
    criteria = tuple(_criterion(one, f"criteria[{number}]") for number, one in enumerate(value))
    seen: dict[str, int] = {}
    for number, criterion in enumerate(criteria):
        first = seen.setdefault(" ".join(criterion.text.split()).casefold(), number)
        if first != number:
            raise ValueError(f"criteria[{number}] repeats criteria[{first}]: leave one of them out")
    if sum(criterion.weight for criterion in criteria) <= 0:
        raise ValueError("the weights of criteria add up to 0: at least one must be greater")
    return criteria


def _criterion(value: Any, name: str) -> Criterion:
    if isinstance(value, Criterion):
        value = {field: getattr(value, field) for field in _FIELDS}
    given = {"text": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ValueError(f"{name} is neither a text nor an object with {', '.join(_FIELDS)}")
    unknown = next((str(key) for key in given if key not in _FIELDS), None)
    if unknown is not None:
        raise ValueError(f"{name} has an unknown field {unknown!r}: it has {', '.join(_FIELDS)}")
    # A table's row has every field of every other one, without a value.
    given = {key: one for key, one in given.items() if one is not None}
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} has no text")
    polarity = given.get("polarity", "positive")
    if polarity not in _POLARITIES:
        raise ValueError(f"{name}: polarity {polarity!r} is neither {' nor '.join(_POLARITIES)}")
    must_have = given.get("must_have", False)
    if not isinstance(must_have, bool):
        raise ValueError(f"{name}: must_have {must_have!r} is neither true nor false")
    return Criterion(
        text=text,
        weight=_weight(given.get("weight", 1.0), name),
        polarity="negative" if polarity == "negative" else "positive",
        must_have=must_have,
    )


def _weight(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Neither `math.isfinite` nor `:g` takes a whole number that fits no float.
    if not number or not -math.inf < value < math.inf:
        raise ValueError(f"{name}: weight {value!r} is not a number")
    if value < 0:
        raise ValueError(f"{name}: weight {value!r:.20} is below 0: a fault has polarity negative instead")
    if value > LARGEST_WEIGHT:
        raise ValueError(f"{name}: weight {value!r:.20} is above {LARGEST_WEIGHT:g}")
    return float(value)
