"""The settings of a run: how their fields are declared, and whether a run may go on with other ones.

A result file, a run folder or a corpus goes on only with the settings that it began with. Every field of the
model that declares them is compared when the run resumes, unless the field is marked: `MOVABLE` fields may
change, `RISES` ones may rise, and `Later` ones were added after runs had been recorded without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from inspect import Parameter
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from tirjudge_environments.types import Later

MOVABLE = "movable"
"""Marks a field that may change when a run resumes, as in `timeout: Annotated[float, MOVABLE] = 600`: no
verdict depends on it."""
RISES = "rises"
"""Marks a number that may only become larger when a run resumes, such as that of steps."""
_LONGEST_ROW = 1 << 24
"""Bytes of a first line that is looked at."""
_SHOWN = 5
"""Differences that a message names."""


@dataclass(frozen=True, slots=True)
class Option:
    """The command-line side of a field; its help text is the docstring below the field."""

    panel: str
    """The group of options in `--help`."""
    flag: str
    """The option as a user types it, such as `--samples` or `--tools/--no-tools`."""
    metavar: str | None = None
    """The value in `--help`; N for a whole number, by default."""
    default: str | None = None
    """Shown as the default where it is not the field's plain value."""
    further: str = ""
    """The field that takes the second and all further values; the option is then repeatable."""
    common: bool = False
    """True for an option that `--help` explains; `--help-all` explains every option."""


def parameters(model: type[BaseModel]) -> list[Parameter]:
    """Return the fields of a model as keyword arguments for a signature, without the metadata of options."""
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=field.get_default(call_default_factory=True),
            annotation=field.annotation,
        )
        for name, field in model.model_fields.items()
    ]


class OtherSettings(ValueError):
    """A run was begun with other settings; the message is one line and names the first differences."""


def refuse_foreign_file(path: Path, companion: Path, command: str) -> None:
    """Raise ValueError for a folder, and a file with content without the companion of `tirjudge COMMAND`.

    Call it before the file is opened: opening drops a torn last line, which may be data of another program.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: choose another --output")
    if path.exists() and path.stat().st_size and not companion.exists():
        why = f"was not written by tirjudge {command}: choose another --output, or --overwrite it"
        if _holds_results(path):
            advice = "put that file beside it, choose another --output, or --overwrite it"
            why = f"lacks its {companion.name}: {advice}"
        raise ValueError(f"{path} exists and {why}")


def _holds_results(path: Path) -> bool:
    """Return True for a file whose first line is a row of a result file."""
    try:
        with path.open("rb") as lines:
            first = json.loads(lines.readline(_LONGEST_ROW))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"id", "digest", "views"} <= first.keys()


def refuse_other_settings(
    place: Path,
    recorded: Mapping[str, Any],
    wanted: Mapping[str, Any],
    declared_by: type[BaseModel],
    *,
    remedy: str = "give the same settings to resume, or another --output",
) -> list[str]:
    """Raise OtherSettings unless the wanted settings are the recorded ones, or move as far as they may.

    Returns how the numbers moved that may rise, each as `rl.steps was 10 and is now 20`.

    Both are JSON or TOML values of the fields of `declared_by`. A key that is missing in the recorded
    settings has the value of the field's `Later`; any other missing key equals null.
    """
    before, now = _compared(declared_by, recorded), _compared(declared_by, wanted)
    moved = _take_over(declared_by, before, now)
    found = list(_differences(before, now))
    if found:
        more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise OtherSettings(
            f"{place} was begun with other settings ({', '.join(found[:_SHOWN])}{more}): {remedy}"
        )
    return moved


def _take_over(kind: Any, before: Any, now: Mapping[str, Any], table: str = "") -> list[str]:
    """Put the numbers that moved as they may into `before`, and return how they moved."""
    moved = []
    for name, field in kind.model_fields.items():
        old, new, key = before.get(name), now.get(name), f"{table}{name}"
        if isinstance(old, dict) and isinstance(new, dict):
            kinds = (field.annotation, *get_args(field.annotation))
            inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
            moved += _take_over(inner, old, new, f"{key}.") if inner is not None else []
        elif isinstance(old, int) and isinstance(new, int) and new > old and RISES in field.metadata:
            before[name] = new
            moved.append(f"{key} was {json.dumps(old)} and is now {json.dumps(new)}")
    return moved


def movable(model: type[BaseModel]) -> set[str]:
    """Return the names of the model's own fields that may change when a run resumes."""
    return {name for name, field in model.model_fields.items() if MOVABLE in field.metadata}


def hashed(value: Any) -> Any:
    """Return a value as JSON whose hash stays the same when a later version adds fields.

    Fields of models and dataclasses are left out where they have the value of their `Later`.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: hashed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [hashed(one) for one in value]
    kind: Any = type(value)
    if isinstance(value, BaseModel):
        names = list(kind.model_fields)
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        return to_jsonable_python(value)
    unused = {name: mark.before for name, mark in _later(kind).items() if not mark.hashed}
    given = {name: getattr(value, name) for name in names}
    return {name: hashed(one) for name, one in given.items() if name not in unused or one != unused[name]}


@cache
def _later(kind: type[Any]) -> Mapping[str, Later]:
    """Return the marks of the later fields of a model or dataclass."""
    if issubclass(kind, BaseModel):
        marks = {name: field.metadata for name, field in kind.model_fields.items()}
    elif is_dataclass(kind):
        marks = {
            name: list(get_args(hint)) for name, hint in get_type_hints(kind, include_extras=True).items()
        }
    else:
        return {}
    return {name: mark for name, found in marks.items() for mark in found if isinstance(mark, Later)}


def _compared(kind: Any, value: Any) -> Any:
    """Return a recorded value of a type without what may change, and with what later versions added."""
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        for inner in get_args(kind):
            if isinstance(value, list):
                value = [_compared(inner, one) for one in value]
            elif isinstance(value, Mapping) and get_origin(kind) in (Mapping, dict):
                value = {key: _compared(inner, one) for key, one in value.items()}
            else:  # a union, in which only one type is a table
                value = _compared(inner, value)
        return value
    if not isinstance(value, Mapping):
        return value
    later = {name: to_jsonable_python(mark.before) for name, mark in _later(kind).items()}
    kept = {key: one for key, one in {**later, **value}.items() if key not in movable(kind)}
    fields_of = kind.model_fields
    return {
        key: _compared(fields_of[key].annotation, one) if key in fields_of else one
        for key, one in kept.items()
    }


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], table: str = "") -> Iterator[str]:
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{table}{key}.")
        elif old != new:
            yield f"{table}{key} was {json.dumps(old)} and is now {json.dumps(new)}"
