"""Rows of a whole JSON document: lists under a key, and the forms in which pandas and hubs write tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tirjudge.console_text import counted
from tirjudge.data.suggestions import known_place, names_a_part
from tirjudge_environments.tasks.columns import similar_name
from tirjudge_environments.tasks.messages import conversation_of

WRAPPERS = frozenset(
    {
        *("data", "rows", "examples", "instances", "items", "records", "results", "questions", "samples"),
        *("cases", "testcases", "tests", "entries", "dataset", "evaluations", "predictions", "traces"),
    }
)
"""Keys of an object that may hold the list of all rows, as `similar_name` leaves them."""
_WRAPPED = re.compile(r'\{\s*"(\w+)"\s*:\s*\[')
_BETWEEN = re.compile(r"[ \t\r\n]*")
_SCALARS = (str, int, float, bool, type(None))


def is_wrapped(start: str) -> bool:
    """Return True for the start of an object that holds a list under one of `WRAPPERS`."""
    found = _WRAPPED.match(start)
    return found is not None and similar_name(found[1]) in WRAPPERS


def concatenated(text: str) -> list[Any] | None:
    """Parse consecutive JSON objects; None if the text holds anything else."""
    decoder, objects, place = json.JSONDecoder(), [], 0
    text = text.strip()
    try:
        while place < len(text):
            found, place = decoder.raw_decode(text, place)
            if not isinstance(found, dict):
                return None
            objects.append(found)
            place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return None
    return objects


def rows_in(document: Any) -> tuple[list[Any], str] | None:
    """Return the rows that a document holds, and a note about where; None for a document that is a row.

    A list of rows is under one of `WRAPPERS`, also twice, as promptfoo writes it. A table is written by
    columns, by rows or in two parts, as `DataFrame.to_json` and `Dataset.to_dict` do. The hub's viewer wraps
    each row.
    """
    if isinstance(document, list):
        return document, ""
    if not isinstance(document, Mapping) or isinstance(document.get("prompt"), str):
        return None
    if (split := _split(document)) is not None:
        return split, "the rows are those of a table in two parts, `columns` and `data`"
    if (found := _listed(document)) is not None:
        key, rows = found
        wrapped = [row["row"] for row in rows if set(row) >= {"row", "row_idx"}]
        rows = wrapped if wrapped and len(wrapped) == len(rows) else rows
        return rows, f"the rows are the list of {len(rows)} under {key!r}"
    if (table := _by_columns(document)) is not None:
        return table, f"the table is written by columns, and has {counted(len(table), 'row')}"
    if (table := _by_rows(document)) is not None:
        return table, f"the rows are the {len(table)} values of one object"
    return None


def _listed(document: Mapping[str, Any], above: str = "") -> tuple[str, list[dict[str, Any]]] | None:
    """Return the only list of objects under a known key, with the key; one text alone is no row.

    Of a document without a known key, and without a part of a row, it is the only list of objects that have
    a prompt each.
    """
    lists = [
        (f"{above}{key}", value)
        for key, value in document.items()
        if similar_name(key) in WRAPPERS
        and isinstance(value, list)
        and all(isinstance(one, dict) and [*map(type, one.values())] != [str] for one in value)
    ]
    lists = [(key, value) for key, value in lists if value] or lists
    if len(lists) == 1:
        return lists[0]
    known = ((key, value) for key, value in document.items() if similar_name(key) in WRAPPERS)
    inner = [(key, value) for key, value in known if isinstance(value, dict)]
    if len(inner) == 1 and not above:
        return _listed(inner[0][1], f"{inner[0][0]}.")
    if above or lists or inner or any(map(names_a_part, document)):
        return None
    others = [(key, value) for key, value in document.items() if _rows(value)]
    return others[0] if len(others) == 1 else None


def _rows(value: Any) -> bool:
    if not isinstance(value, list) or len(value) < 2 or conversation_of(value) is not None:
        return False
    return all(isinstance(one, dict) and len(one) > 1 and known_place(one, "prompt") for one in value)


def _split(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    columns, data = document.get("columns"), document.get("data")
    if not isinstance(columns, list) or not isinstance(data, list):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in data):
        return None
    return [dict(zip(map(str, columns), row, strict=True)) for row in data]


def _by_columns(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    columns = list(document.values())
    if len(columns) < 2:
        return None
    if all(isinstance(one, list) and all(isinstance(cell, _SCALARS) for cell in one) for one in columns):
        if len(set(map(len, columns))) > 1 or not columns[0]:
            return None
        return [dict(zip(document, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if all(isinstance(one, dict) and one and all(map(str.isdecimal, one)) for one in columns):
        places = list(dict.fromkeys(place for one in columns for place in one))
        return [{name: one.get(place) for name, one in document.items()} for place in places]
    return None


def _by_rows(document: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows of an object whose values are rows, with their keys as ids."""
    rows = list(document.values())
    if len(rows) < 2 or not all(isinstance(row, dict) and len(row) > 1 for row in rows):
        return None
    if len({frozenset(row) for row in rows}) > 1:
        return None
    return [row if "id" in row else {"id": name, **row} for name, row in document.items()]


def objects_of(text: str, *, pretty: bool) -> tuple[list[Any], str] | None:
    """Return the rows of a file of JSON objects that is no file of JSON lines, and a note about it.

    `pretty` is True if its first object is pretty-printed. None for a file that is read line by line.
    """
    objects = concatenated(text)
    if objects is None or (len(objects) > 1 and not pretty):
        return None
    found = rows_in(objects[0]) if len(objects) == 1 else None
    if found is not None or not pretty:
        return found
    return objects, f"pretty-printed JSON is read as {counted(len(objects), 'row')}"
