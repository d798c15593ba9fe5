"""Cells of a row: texts, numbers and JSON, as tables, JSON lines and Parquet hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


class RowError(ValueError):
    """A row that cannot be converted to a task; the message names the column and the problem in one line."""


def text_of(value: Any, name: str) -> str:
    """Return a text; numbers and truth values become text as Python prints them, as datasets hold them."""
    if isinstance(value, str):
        return value
    if is_nan(value):
        raise RowError(f"{name} is NaN, a missing value")
    if isinstance(value, bool | int | float):
        return str(value)
    raise RowError(f"{name} is {type_name(value)}, not a text")


def is_nan(value: Any) -> bool:
    """Return True for NaN, with which tables mark a missing value."""
    return isinstance(value, float) and math.isnan(value)


def is_empty(value: Any) -> bool:
    """Return True for a value that is missing, also as the empty cell of a table."""
    return value is None or value == ""


def parsed(value: Any) -> Any:
    """Return what a table's cell holds as JSON; None for a text that is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def type_name(value: Any) -> str:
    """Return the type of a value, in the words of messages: `a list`, `a text`, `missing`."""
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
