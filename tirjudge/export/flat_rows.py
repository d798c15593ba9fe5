"""Result files as Parquet or CSV: one line per row, with the dialogues as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from tirjudge.judging.result_rows import read_result_rows
from tirjudge.judging.views import encodable
from tirjudge.storage.run_folder import complete_file

_TEXT, _WHOLE, _NUMBER, _FLAG, _JSON = "text", "whole", "number", "flag", "json"
COLUMNS: Mapping[str, str] = {
    "id": _TEXT,
    "format": _TEXT,
    "verdict": _TEXT,
    "choice": _WHOLE,
    "scores": _JSON,
    "label": _WHOLE,
    "correct": _NUMBER,
    "flipped": _FLAG,
    "stop": _TEXT,
    "detail": _TEXT,
    "domain": _TEXT,
    "tags": _JSON,
    "prompt": _JSON,
    "responses": _JSON,
    "reference": _TEXT,
    "criteria": _JSON,
    "views": _JSON,
    "programs": _WHOLE,
    "programs_failed": _WHOLE,
    "programs_refused": _WHOLE,
    "prompt_tokens": _WHOLE,
    "completion_tokens": _WHOLE,
    "seconds": _NUMBER,
    "model": _TEXT,
    "note": _TEXT,
    "where": _TEXT,
    "cut": _FLAG,
}
"""Column to its type: those of a result row (see `docs/judge.md`), and `flipped`."""
_BATCH = 256


def write_parquet(results: Path, place: Path) -> int:
    """Write a result file as Parquet, and return the number of rows; memory does not grow with them.

    Raises ValueError, in one line, without pyarrow and for a file that is no result file; OSError.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ValueError("Parquet needs an extra: pip install 'tirjudge[data]'") from None
    types = {
        _TEXT: pyarrow.string(),
        _JSON: pyarrow.string(),
        _WHOLE: pyarrow.int64(),
        _NUMBER: pyarrow.float64(),
        _FLAG: pyarrow.bool_(),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])

    rows, count = _rows(results), 0
    with complete_file(place) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def write_csv(results: Path, place: Path) -> int:
    """Write a result file as CSV with a header, and return the number of rows. Raises as `write_parquet`."""
    rows = _rows(results)
    with complete_file(place) as file:
        stream = TextIOWrapper(file, encoding="utf-8", newline="")
        count = _write_lines(rows, stream)
        stream.detach()  # flushes, and leaves the file open for its owner
    return count


def stream_csv(results: Path, stream: TextIO) -> int:
    """Write a result file as CSV to an open stream, such as standard output; see `write_csv`."""
    return _write_lines(_rows(results), stream)


def _write_lines(rows: Iterator[dict[str, Any]], stream: TextIO) -> int:
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    count = 0
    for row in rows:
        writer.writerow(row)
        count += 1
    return count


def _rows(results: Path) -> Iterator[dict[str, Any]]:
    """Return the flat rows; raises ValueError for a file without any before one is written."""
    rows = _flat_rows(results)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{results} has no rows")
    return chain([first], rows)


def _flat_rows(results: Path) -> Iterator[dict[str, Any]]:
    for row, fields in read_result_rows(results):
        given = {**fields, "flipped": row.flipped}
        yield {name: _cell(given.get(name), kind) for name, kind in COLUMNS.items()}


def _cell(value: Any, kind: str) -> Any:
    """Return a value of the column's type; None for a missing one and for one of another type."""
    if value is None:
        return None
    if kind == _JSON:
        # ASCII, in which lone surrogates remain escapes.
        return json.dumps(value)
    if kind == _TEXT:
        return encodable(str(value))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == _NUMBER:
        return float(value) if is_number else None
    if kind == _WHOLE:
        return value if isinstance(value, int) and is_number and abs(value) < 2**63 else None
    return value if isinstance(value, bool) else None
