"""A replay: one file of stored outputs, told by its first row, read as often as there are protocols."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow, Row, RowFile
from tirjudge.evaluation.base import Judged
from tirjudge.evaluation.replays.alpaca_eval import AlpacaEval
from tirjudge.evaluation.replays.base import ReplayFormat, Unreadable
from tirjudge.evaluation.replays.episodes import Episodes
from tirjudge.evaluation.replays.judgebench import JudgeBench
from tirjudge.evaluation.replays.judgelrm import JudgeLrm
from tirjudge.evaluation.replays.metajudge import MetaJudgeOutputs
from tirjudge.evaluation.replays.ours import Ours
from tirjudge.evaluation.replays.pandalm import PandaLm
from tirjudge.evaluation.replays.rewardbench_subsets import RewardBenchSubsets
from tirjudge.evaluation.replays.rm_r1 import RmR1Transcripts
from tirjudge.evaluation.replays.rmb import RmbScores
from tirjudge.evaluation.replays.summaries import Summaries
from tirjudge.evaluation.soundness import must_be_sound

_FORMATS: tuple[ReplayFormat, ...] = (
    Ours(),
    Episodes(),
    JudgeBench(),
    JudgeLrm(),
    PandaLm(),
    RmR1Transcripts(),
    RmbScores(),
    RewardBenchSubsets(),
    Summaries(),
    MetaJudgeOutputs(),
    AlpacaEval(),
)
_KEYS = ("idx", "pair_id", "id", "index")


class Replay:
    """The judged rows of a file, from the start at each iteration.

    Iterating raises ValueError, naming file and line, for a row that is not what its format has.
    """

    def __init__(
        self,
        path: Path,
        format: ReplayFormat,
        labels: Mapping[str, Any] | None = None,
        extras: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`extras` are added to those of the row with that id."""
        self.path = path
        self.format = format
        self._labels = labels
        self._extras = extras or {}

    @property
    def benchmark(self) -> str:
        """Its name, as the format or the run's settings tell it; empty if neither does."""
        return self.format.benchmark or _recorded_benchmark(self.path)

    def __iter__(self) -> Iterator[Judged]:
        for row in _rows(self.path):
            try:
                read = list(self.format.read(row.fields, self._label(row), row.default_id))
                for judged in read:
                    must_be_sound(judged)
            except Unreadable as error:
                raise ValueError(f"{row.where}: {error}") from None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{row.where}: no row of format {self.format.name} ({reason})") from None
            yield from map(self._with_extras, read)

    def with_extras(self, extras: Mapping[str, Mapping[str, Any]]) -> Replay:
        """The same rows, with what was found out about them since, by id."""
        return Replay(self.path, self.format, self._labels, {**self._extras, **extras})

    def _with_extras(self, judged: Judged) -> Judged:
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
    """A file of stored outputs; `labels` is another file, joined by idx, pair_id or id.

    Raises ValueError, in one line, for what no format knows; OSError for what cannot be read.
    """
    first = next(iter(_rows(path)), None)
    if first is None:
        raise ValueError(f"{path} is empty")
    known = None if labels is None else {_key(row.fields): row.fields for row in _rows(labels)}
    for one in _FORMATS:
        if one.name == format or (not format and one.recognises(first.fields)):
            return Replay(path, one, known)
    names = ", ".join(one.name for one in _FORMATS)
    if format:
        raise ValueError(f"no format {format!r} of stored outputs; there are {names}")
    raise ValueError(f"{path}: its first row is of no format of stored outputs ({names})")


def replay_formats() -> tuple[ReplayFormat, ...]:
    return _FORMATS


def _recorded_benchmark(path: Path) -> str:
    settings = path.with_name(path.name + ".settings.json")
    try:
        recorded = json.loads(settings.read_text(encoding="utf-8"))["settings"]["benchmark"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return recorded if isinstance(recorded, str) else ""


def _rows(path: Path) -> Iterable[Row]:
    """Rows of JSON lines, of an array, or the one object that is the whole file."""
    whole = _object(path)
    if whole is not None:
        yield Row(str(path), "item-1", whole)
        return
    for row in RowFile(str(path)):
        if isinstance(row, BadRow):
            raise ValueError(f"{row.where}: {row.reason}")
        yield row


def _object(path: Path) -> Mapping[str, Any] | None:
    """A file that is one JSON object over several lines."""
    with path.open("rb") as file:
        first = file.readline().strip()
        if not first.startswith(b"{") or first.endswith(b"}"):
            return None
        try:
            value = json.loads(first + file.read())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not JSON lines, and not one JSON object: {error}") from None
    return value if isinstance(value, dict) else None


def _key(row: Mapping[str, Any]) -> str:
    for name in _KEYS:
        if name in row:
            return str(row[name])
    raise Unreadable(f"no column to join by: one of {', '.join(_KEYS)}")
