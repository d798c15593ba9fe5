"""Files of stored outputs: recognised by their first row, checked, and read once for each protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tirjudge.data.rows import BadRow, Row, RowFile
from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import StoredOutputFormat, Unreadable
from tirjudge_sandbox.registry import Plugins

STORED_OUTPUTS = Plugins("tirjudge.stored_outputs", "format of stored outputs")
"""Each entry point names a `StoredOutputFormat` object."""
_KEYS = ("idx", "pair_id", "id", "index")
_JUDGED_ROW = TypeAdapter(JudgedRow)


class Replay:
    """The judged rows of a file, read from the start at each iteration.

    Iterating raises ValueError, with file and line, for a row that does not have the shape of its format.
    """

    def __init__(
        self,
        path: Path,
        format: StoredOutputFormat,
        labels: Mapping[str, Any] | None = None,
        extras: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`labels` and `extras` are keyed by row; extras are merged into those of the judged row."""
        self.path = path
        self.format = format
        self._labels = labels
        self._extras = extras or {}

    @property
    def benchmark(self) -> str:
        """Name of the benchmark, from the format or from the run's settings; empty if neither has it."""
        return self.format.benchmark or _recorded_benchmark(self.path)

    def __iter__(self) -> Iterator[JudgedRow]:
        for row in _rows(self.path):
            try:
                judged_rows = list(self.format.read(row.fields, self._label(row), row.default_id))
                for judged in judged_rows:
                    _check(judged)
            except Unreadable as error:
                raise ValueError(f"{row.where}: {error}") from None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{row.where}: not a row of format {self.format.name} ({reason})") from None
            yield from map(self._with_extras, judged_rows)

    def with_extras(self, extras: Mapping[str, Mapping[str, Any]]) -> Replay:
        """Return the same rows with these extras, by row id, merged into theirs."""
        return Replay(self.path, self.format, self._labels, {**self._extras, **extras})

    def _with_extras(self, judged: JudgedRow) -> JudgedRow:
        found = self._extras.get(judged.id)
        return judged if found is None else replace(judged, extras={**judged.extras, **found})

    def _label(self, row: Row) -> Mapping[str, Any] | None:
        if self._labels is None:
            return None
        key = _key(row.fields)
        if key not in self._labels:
            raise Unreadable(f"the file of labels has no row {key!r}")
        found: Mapping[str, Any] = self._labels[key]
        return found


def open_replay(path: Path, *, labels: Path | None = None, format: str = "") -> Replay:
    """Open a file of stored outputs; `labels` is another file, joined by idx, pair_id, id or index.

    The format is recognised by the first row unless it is named. Raises ValueError, in one line, for an
    unknown or ambiguous format, and OSError for a file that cannot be read.
    """
    first = next(iter(_rows(path)), None)
    if first is None:
        raise ValueError(f"{path} is empty")
    known = None if labels is None else {_key(row.fields): row.fields for row in _rows(labels)}
    if format:
        return Replay(path, STORED_OUTPUTS.load(format), known)
    found = [one for one in stored_output_formats() if one.recognises(first.fields)]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise ValueError(
            f"{path}: its first row fits several formats; name one with --replay-format ({names})"
        )
    if not found:
        names = ", ".join(STORED_OUTPUTS.names())
        raise ValueError(f"{path}: its first row fits no format of stored outputs ({names})")
    return Replay(path, found[0], known)


def stored_output_formats() -> tuple[StoredOutputFormat, ...]:
    """Return every format, sorted by name. Raises ValueError for an entry that cannot be imported."""
    return tuple(map(STORED_OUTPUTS.load, STORED_OUTPUTS.names()))


def _check(judged: JudgedRow) -> None:
    """Raise ValueError, in one line, for values that no protocol could score: files may be hostile."""
    try:
        _JUDGED_ROW.validate_python(judged)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    labels = () if judged.label is None else (judged.label,)
    shown = (index for vote in judged.votes for index in (*vote.best, *vote.order, *vote.scores))
    for index in (*labels, *shown):
        if index >= judged.candidates:
            raise ValueError(f"candidate {index} of {judged.candidates}")


def _recorded_benchmark(path: Path) -> str:
    settings = path.with_name(path.name + ".settings.json")
    try:
        recorded = json.loads(settings.read_text(encoding="utf-8"))["settings"]["benchmark"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return recorded if isinstance(recorded, str) else ""


def _rows(path: Path) -> Iterable[Row]:
    """Yield the rows of JSON lines or of an array, or the one object that is the whole file."""
    whole = _object(path)
    if whole is not None:
        yield Row(str(path), "item-1", whole)
        return
    for row in RowFile(str(path)):
        if isinstance(row, BadRow):
            raise ValueError(f"{row.where}: {row.reason}")
        yield row


def _object(path: Path) -> Mapping[str, Any] | None:
    """Return the content of a file that is one JSON object over several lines; None for other files."""
    with path.open("rb") as file:
        first = file.readline().strip()
        if not first.startswith(b"{") or first.endswith(b"}"):
            return None
        try:
            value = json.loads(first + file.read())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: neither JSON lines nor one JSON object: {error}") from None
    return value if isinstance(value, dict) else None


def _key(row: Mapping[str, Any]) -> str:
    for name in _KEYS:
        if name in row:
            return str(row[name])
    raise Unreadable(f"no column to join by: one of {', '.join(_KEYS)}")
