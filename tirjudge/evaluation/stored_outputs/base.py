"""The interface of a stored-output format, which turns the rows of a file into judged rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from tirjudge.evaluation.judged_rows import JudgedRow
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.tasks.labels import is_tie, is_unlabelled

Record = Mapping[str, Any]

OTHER = 2.0
"""The key of all numbers but 0 and 1 in the counts of a Scale."""
_PROMPTS = ("prompt", "instruction", "question", "conversation_input", "conversation")
"""Columns that may hold a row's prompt, which several rows may share; the first that a row has counts."""
_LONGEST_SHOWN = 60
_VERDICT = re.compile(r"([AB])(>{1,2}|<{1,2}|=)([AB])")


class Unreadable(ValueError):
    """A row does not have its format's shape; the message says in one line what is wrong.

    `fields` are the fields of the label, if the label is wrong and not the row of results.
    """

    def __init__(self, reason: str, fields: Record | None = None) -> None:
        super().__init__(reason)
        self.fields = fields


class StoredOutputFormat(Protocol):
    """A format in which one project stores its judges' outputs; registered in `tirjudge.stored_outputs`."""

    @property
    def name(self) -> str:
        """Equals the name of the format's entry point."""

    @property
    def about(self) -> str:
        """Project and files, in one line."""

    @property
    def benchmark(self) -> str:
        """Benchmark whose published figures are printed with the scores; empty if the format has none."""

    @property
    def protocols(self) -> tuple[str, ...]:
        """Names of the default protocols."""

    def recognises(self, row: Record) -> bool:
        """Return True if a file whose first row is `row` has this format; at most one format may."""

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        """Read one row; `label` is the matching row of the file of labels, if `--labels` was given.

        The label is looked up when it is first used; a format that never uses it takes no `--labels`. Raises
        Unreadable, KeyError, TypeError or ValueError for a row of another shape.
        """


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of a column that can show, over a whole file, that they are on another scale."""

    column: str
    values: Callable[[Record], Iterable[Any]]
    """Returns the column's values in a row; values that are no numbers are passed over."""
    fault: Callable[[Mapping[float, int]], str]
    """Says what is wrong with a file that has so many zeros, ones and others (OTHER); empty if nothing is."""


@runtime_checkable
class NestedFormat(Protocol):
    """A format with nested columns, whose shape explains why a row could not be read."""

    @property
    def shape(self) -> TypeAdapter[Any]:
        """The columns that are read. It is only asked for rows that `read` has refused."""


def prompt_of(row: Record) -> str:
    """Return the prompt of a row, with its input if it has one; empty without one."""
    found = next((row[name] for name in _PROMPTS if row.get(name)), None)
    if found is None:
        return ""
    given = row.get("input")
    # Most prompts are a text alone, and a text that looks like JSON is no other row's list.
    return prompt_cluster(found if isinstance(found, str) and given is None else [found, given])


def wrong_column(shape: TypeAdapter[Any], row: Record) -> str:
    """Return what is wrong with the first column that does not fit, such as `views.0.order is 5: ...`.

    The result is empty if all columns fit.
    """
    try:
        shape.validate_python(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            return f"no column {path!r}"
        reason = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        return f"{path} is {shown(first['input'])}: {reason}"
    return ""


@runtime_checkable
class ScaledFormat(Protocol):
    """A format with columns whose scale is checked over the whole file."""

    @property
    def scales(self) -> tuple[Scale, ...]: ...


def shown(value: Any) -> str:
    """Return a value of a row as JSON, shortened, for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def need(row: Record, column: str) -> Any:
    """Return a column's value. Raises Unreadable if the row has no such column."""
    if column not in row:
        raise Unreadable(f"no column {column!r}", row)
    return row[column]


def as_number(value: Any, column: str, row: Record | None = None) -> float:
    """Return a finite number, which may be a table's text. Raises Unreadable, with the column, for others."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise Unreadable(f"{column} is {shown(value)}, not a finite number", row)


def need_number(row: Record, column: str) -> float:
    """Return a column that is a finite number. Raises Unreadable."""
    return as_number(need(row, column), column, row)


def need_share(row: Record, column: str) -> float:
    """Return a column that is a share from 0 to 1. Raises Unreadable, also for a percentage."""
    number = need_number(row, column)
    if 0 <= number <= 1:
        return number
    hint = " (is it a percentage? divide by 100)" if 1 < number <= 100 else ""
    raise Unreadable(f"{column} is {shown(row[column])}, not a share from 0 to 1{hint}", row)


def need_text(row: Record, column: str) -> str:
    """Return a column that is a text. Raises Unreadable."""
    value = need(row, column)
    if not isinstance(value, str):
        raise Unreadable(f"{column} is {shown(value)}, not a text", row)
    return value


def need_list(row: Record, column: str) -> Sequence[Any]:
    """Return a column that is a list. Raises Unreadable."""
    value = need(row, column)
    if not isinstance(value, list):
        raise Unreadable(f"{column} is {shown(value)}, not a list", row)
    return value


def need_object(row: Record, column: str) -> Record:
    """Return a column that is an object. Raises Unreadable."""
    value = need(row, column)
    if not isinstance(value, Mapping):
        raise Unreadable(f"{column} is {shown(value)}, not an object", row)
    return value


@contextmanager
def reading(row: Record) -> Iterator[None]:
    """Turn errors of the functions that read `row` into Unreadable, which names this row."""
    try:
        yield
    except Unreadable:
        raise
    except KeyError as error:
        raise Unreadable(f"no column {error}", row) from None
    except ValueError as error:
        raise Unreadable(str(error), row) from None


def read_choice(value: Any, candidates: int = 2, names: Mapping[str, str] | None = None) -> tuple[int, ...]:
    """Return the candidates in first place: one, both of a pair for a tie, none for no verdict.

    A value is a letter, `tie`, a ranking of a pair (`A>B`, `A>>B`, `A=B`, also in double brackets), or an
    index from 0. `names` gives a file's own values their meaning first: {"1": "A", "0": "tie", "x": "none"}.
    Raises ValueError, which starts with the value, for another one.
    """
    if names is None and is_unlabelled(value):
        return ()
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    if names is not None:
        known = text if text in names else text.removesuffix(".0")
        if known not in names and is_unlabelled(value):
            return ()
        if known not in names:
            raise ValueError(f"{shown(value)}, which is none of {', '.join(names)}")
        text = names[known]
    plain = text.removeprefix("[[").removesuffix("]]").upper()
    if plain == "NONE" and names is not None:
        return ()
    if is_tie(plain):
        return tuple(range(candidates))
    if found := _VERDICT.fullmatch(plain):
        first, relation, second = found.groups()
        if first != second:
            best = first if ">" in relation else second
            return (0, 1) if relation == "=" else ("AB".index(best),)
    elif plain in (names_of := letters(candidates)):
        return (names_of.index(plain),)
    elif re.fullmatch(r"[0-9]{1,9}(\.0)?", plain) and int(float(plain)) < candidates:
        return (int(float(plain)),)
    last = letter(candidates - 1)
    raise ValueError(
        f"{shown(value)}, which is no letter from A to {last}, no A>B, no tie and no index from 0 to "
        f"{candidates - 1}; say what it means, such as --labels 1=A,2=B,0=tie"
    )


def read_strength(value: Any, names: Mapping[str, str] | None = None) -> int:
    """Return 2 for a value that `read_choice` reads and that says much better, `A>>B`; 1 for others."""
    text = str(value).strip()
    meaning = text if names is None else names.get(text, names.get(text.removesuffix(".0"), ""))
    return 2 if ">>" in meaning or "<<" in meaning else 1


def pair_vote(first: float, second: float) -> tuple[int, ...]:
    """Return the candidates with the higher number; both for equal numbers, none if one is not finite."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return ()
    if first == second:
        return 0, 1
    return (0,) if first > second else (1,)
