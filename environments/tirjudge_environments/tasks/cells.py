"""Cells of a row: texts, numbers and lists, as tables, JSON lines, Parquet, pandas and numpy hold them."""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST_LITERAL = 1 << 20
"""Characters of a list that is read as Python or numpy print it, which takes far longer than JSON."""
_AS_PYTHON = ("tolist", "to_list", "as_py")
"""Methods with which the values of numpy and pandas, polars, and pyarrow become Python's own."""
_MISSING_TYPES = ("NAType", "NaTType")
"""Types of the values with which pandas marks a missing text, number or time."""
_NAMES = {"nan": "None", "NaN": "None", "null": "None", "true": "True", "false": "False"}
"""Names in printed lists that are no Python literals, with Python's names."""
_VALUES = (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
_SPACES = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class RowError(ValueError):
    """A row that cannot be converted to a task; the message names the column and the problem in one line."""


def plain(value: Any) -> Any:
    """Return a value as JSON would give it: arrays and scalars of table libraries become lists and numbers.

    A value that pandas marks as missing becomes None. Values of other types are returned as they are.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if type(value).__name__ in _MISSING_TYPES:
        return None
    method = next((name for name in _AS_PYTHON if callable(getattr(value, name, None))), None)
    if method is None:
        return value
    found = getattr(value, method)()
    # Only a container can hold further values of the library.
    return plain(found) if isinstance(found, list | tuple | Mapping) else found


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
    """Return the value in a table cell: JSON, or a list printed by Python or numpy; None for other texts."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _literal(value.strip())


def _literal(text: str) -> Any:
    if not text.startswith(("[", "(", "{")) or len(text) > _LONGEST_LITERAL:
        return None
    try:
        return plain(ast.literal_eval("".join(_separated(text))))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
        return None


def _separated(text: str) -> Iterator[str]:
    """Yield the words of a printed list as Python's, with the commas that numpy leaves out."""
    ended = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _SPACES:
            continue
        if ended and (token.type in _VALUES or token.string in "[({"):
            yield ","
        if token.string == "...":
            raise ValueError("numpy leaves out the middle of a long array")
        yield _NAMES.get(token.string, token.string) if token.type == tokenize.NAME else token.string
        ended = token.type in _VALUES or token.string in "])}"


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
