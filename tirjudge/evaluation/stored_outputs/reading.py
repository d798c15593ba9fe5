"""Files of stored outputs: recognised by their first row, checked, and read once for each protocol."""

from __future__ import annotations

import shlex
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tirjudge.data.rows import Row
from tirjudge.evaluation.judged_rows import JudgedRow, MatchedReasons, SummaryId, decision
from tirjudge.evaluation.stored_outputs.base import (
    OTHER,
    NestedFormat,
    Scale,
    ScaledFormat,
    StoredOutputFormat,
    Unreadable,
    prompt_of,
    wrong_column,
)
from tirjudge.evaluation.stored_outputs.columns import RatingFile, VerdictColumns, VerdictFile
from tirjudge.evaluation.stored_outputs.files import (
    BY_KEYS,
    BadLabels,
    JoinedBy,
    LabelFile,
    RunFiles,
    SwappedFiles,
)
from tirjudge.judging.tally import EvidenceTally
from tirjudge.records.verdicts import verdict_credit
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.result_file import recorded_settings
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks.labels import is_unlabelled
from tirjudge_sandbox.registry import Plugins

STORED_OUTPUTS = Plugins(
    "tirjudge.stored_outputs",
    "format of stored outputs",
    "tirjudge.evaluation",
    {
        "alpaca_eval": "stored_outputs.alpaca_eval:ALPACA_EVAL",
        "judgebench": "benchmarks.judgebench:JUDGEBENCH_OUTPUTS",
        "judgelrm": "benchmarks.pandalm:JUDGELRM_OUTPUTS",
        "metajudge": "benchmarks.rationale_rm:METAJUDGE_OUTPUTS",
        "pandalm": "benchmarks.pandalm:PANDALM_OUTPUTS",
        "rewardbench": "benchmarks.rewardbench:REWARDBENCH_OUTPUTS",
        "rm-r1": "benchmarks.rmb:RM_R1_OUTPUTS",
        "rm-r1-summary": "stored_outputs.summaries:SUMMARIES_OUTPUTS",
        "rmb": "benchmarks.rmb:RMB_OUTPUTS",
        "tirjudge": "stored_outputs.tirjudge_results:TIRJUDGE_RESULTS",
    },
)
"""Each entry point names a `StoredOutputFormat` object."""
Duplicates = Literal["refuse", "first"]
_JUDGED_ROW = TypeAdapter(JudgedRow)
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors of reading a row that lacks a part or holds a value of another type."""


class Replay:
    """The judged rows of a run's files, read from the start at each iteration.

    Iterating raises ValueError, with file and line, for a row that does not have the shape of its format, for
    a second row with the same id, and for a column on another scale.
    """

    def __init__(
        self,
        files: RunFiles | SwappedFiles,
        format: StoredOutputFormat,
        *,
        labels: LabelFile | None = None,
        duplicates: Duplicates = "refuse",
        reasons: Mapping[str, MatchedReasons] | None = None,
        cluster: str = "",
        join: JoinedBy = BY_KEYS,
    ) -> None:
        """Rows with the same value in the column `cluster`, by default the prompt, belong together.

        `reasons`, by row id, were matched with those of people.

        With `duplicates="first"`, only the first of several rows with the same id counts.
        """
        self.files = files
        self.name = files.name
        """The name of the run for messages and tables."""
        self.format = format
        self.dropped = 0
        """Rows that the last iteration dropped because their id had been read before."""
        self.unlabelled = 0
        """Rows for which the last iteration found none in the file of labels, if there is one."""
        self._labels = labels
        self._duplicates: Duplicates = duplicates
        self._reasons = reasons or {}
        self.join = join
        """How rows are joined with labels."""
        self._evidence: EvidenceTally | None = None
        """The evidence of all rows, counted by the first complete iteration; None before."""
        self.cluster = cluster
        """Column of what rows have in common; empty for the prompt."""

    @property
    def has_options(self) -> bool:
        """True if labels, duplicates or clusters are not read as they are by default."""
        return self._labels is not None or self._duplicates != "refuse" or bool(self.cluster)

    @property
    def path(self) -> Path:
        """The first of the files."""
        return self.files.paths[0]

    @property
    def benchmark(self) -> str:
        """Name of the benchmark, from the format or from the run's settings; empty if neither has it."""
        recorded = (recorded_settings(self.path) or {}).get("benchmark")
        return self.format.benchmark or (recorded if isinstance(recorded, str) else "")

    @property
    def evidence(self) -> EvidenceTally:
        """Counts of the verdicts that programs decided; of files of other programs, of none."""
        if self._evidence is None and self._is_own:
            for _ in self.with_rows():
                pass
        return self._evidence or EvidenceTally()

    def __iter__(self) -> Iterator[JudgedRow]:
        return (judged for judged, _ in self.with_rows())

    def with_rows(self) -> Iterator[tuple[JudgedRow, Row]]:
        """Yield each judged row with its row in the file, by which labels are joined.

        A place of an object of lists has a row with its id alone.
        """
        known = _Hashes()
        scales = _Scales(self.format.scales if isinstance(self.format, ScaledFormat) else ())
        swaps = _Swaps(self.format)
        models: dict[str, str] = {}
        # Counted by the first iteration, since reading a million rows once more takes minutes.
        evidence = EvidenceTally() if self._evidence is None and self._is_own else None
        self.dropped, self.unlabelled, position = 0, 0, -1
        for position, row in enumerate(self.files):
            scales.add(row)
            self._check_model(row, models)
            judged_rows = self._read(row, position)
            for judged in judged_rows:
                swaps.add(judged)
                # RMB numbers rows in each section from 0, and alpaca_eval files may hold several models.
                if known.add(hash((judged.domain, judged.id, judged.tag("model")))):
                    own = row if len(judged_rows) == 1 else replace(row, fields={"id": judged.id})
                    if evidence is not None:
                        self._count(evidence, judged, row)
                    yield self._with_reasons(judged), own
                elif self._duplicates == "first":
                    self.dropped += 1
                else:
                    raise ValueError(f"{row.where}: two rows have the id {judged.id!r}; {self._advice}")
        scales.check()
        swaps.check(self.name)
        if self._labels is not None:
            self._labels.check_length(position + 1, self.name)
            if 0 < position + 1 == self.unlabelled:
                by = self._labels.joined_by
                raise ValueError(f"{self._labels.name} has the {by} of none of the rows of {self.name}")
        self._evidence = self._evidence or evidence

    @property
    def _is_own(self) -> bool:
        return self.format.name == "tirjudge"

    def _check_model(self, row: Row, models: dict[str, str]) -> None:
        """Raise ValueError for the second judge of one result file: two judges are two runs."""
        model = row.fields.get("model") if self._is_own else None
        if isinstance(model, str):
            models.setdefault(model, row.where)
        if len(models) > 1:
            (first, where), (second, later) = models.items()
            own = "score the rows of each judge as a run of its own"
            advice = self._advice if len(self.files.paths) > 1 else own
            raise ValueError(f"{later}: a verdict of {second!r} among those of {first!r} ({where}): {advice}")

    @property
    def _advice(self) -> str:
        """Advice about a row that occurs again."""
        if len(self.files.paths) < 2:
            return "--duplicates first counts only the first"
        return f"tirjudge compare {shlex.join(map(str, self.files.paths))} compares the files of two judges"

    def with_reasons(self, reasons: Mapping[str, MatchedReasons]) -> Replay:
        """Return the same rows with these matched reasons, by row id."""
        return Replay(
            self.files,
            self.format,
            labels=self._labels,
            duplicates=self._duplicates,
            reasons={**self._reasons, **reasons},
            cluster=self.cluster,
            join=self.join,
        )

    def _read(self, row: Row, position: int) -> list[JudgedRow]:
        label = None if self._labels is None else self._labels.label(row, position)
        try:
            judged_rows = list(self.format.read(row.fields, label, row.default_id))
            for judged in judged_rows:
                _check(judged)
            judged_rows = [self._in_cluster(judged, row.fields) for judged in judged_rows]
        except BadLabels as error:
            raise ValueError(str(error)) from None
        except Unreadable as error:
            blamed = label.where if label is not None and error.fields is label else row.where
            raise ValueError(f"{blamed}: {error}") from None
        except _UNREADABLE as error:
            raise self._unreadable(row, error) from None
        self.unlabelled += label is not None and label.missing
        if label is not None and judged_rows and not label.used:
            raise ValueError(
                f"{row.where}: format {self.format.name} does not use --labels: leave the option out"
            )
        return judged_rows

    def _unreadable(self, row: Row, error: Exception) -> ValueError:
        nested = isinstance(self.format, NestedFormat) and wrong_column(self.format.shape, row.fields)
        return ValueError(
            f"{row.where}: {nested or f'not a row of format {self.format.name} ({_reason(error)})'}"
        )

    def _count(self, evidence: EvidenceTally, judged: JudgedRow, row: Row) -> None:
        label = judged.label if judged.candidates > 1 else None
        credit = None if label is None else verdict_credit(decision(judged), label)
        try:
            evidence.add(row.fields, credit, judged.label, prompt_cluster(judged.cluster))
        except _UNREADABLE as error:
            raise self._unreadable(row, error) from None

    def _in_cluster(self, judged: JudgedRow, fields: Mapping[str, Any]) -> JudgedRow:
        if self.cluster:
            value = fields.get(self.cluster)
            if value is None or value == "":
                raise Unreadable(f"no value in the column {self.cluster!r} of --cluster")
            return replace(judged, cluster=str(value))
        if judged.cluster or isinstance(judged.id, SummaryId):
            return judged
        prompt = prompt_of(fields)
        return replace(judged, cluster=prompt) if prompt else judged

    def _with_reasons(self, judged: JudgedRow) -> JudgedRow:
        found = self._reasons.get(judged.id)
        return judged if found is None else replace(judged, reasons=found)


def open_replay(
    path: Path | Sequence[Path],
    *,
    labels: Path | None = None,
    format: str = "",
    columns: VerdictColumns | None = None,
    swapped: Path | None = None,
    duplicates: Duplicates = "refuse",
    cluster: str = "",
) -> Replay:
    """Open files of stored outputs as one run; `labels` is another file, joined by idx, pair_id, id or index.

    The format is recognised by the first row unless it is named; with `columns`, any file is read, whose
    verdicts or scores are in these columns. `swapped` holds the same rows, judged with the responses
    swapped. Rows with the same value in the column `cluster`, by default the prompt, belong together. Raises
    ValueError, in one line, for an unknown or ambiguous format, and OSError for a file that cannot be read.
    """
    own = RunFiles([path] if isinstance(path, Path) else path)
    files: RunFiles | SwappedFiles = own
    if swapped is not None and columns is not None:
        files = SwappedFiles(own, RunFiles([swapped]), columns.swap)
    first = next(iter(files), None)
    if first is None:
        raise ValueError(f"{files.paths[0]} is empty")
    if columns is not None and format:
        raise ValueError("--column reads files of any format: leave out --format")
    if columns is None:
        found, join = _format(files, first, format), BY_KEYS
    else:
        found, join = columns.format(one_object=own.one_object), columns.joined_by(first.fields)
        if isinstance(found, VerdictFile | RatingFile):
            found.look_into(files)
    known = None if labels is None else LabelFile(RunFiles([labels]), str(labels), join)
    return Replay(files, found, labels=known, duplicates=duplicates, cluster=cluster, join=join)


class _CompleteRows(RunFiles):
    """The rows of a result file that may still be written: a torn last one is left out."""

    def __iter__(self) -> Iterator[Row]:
        for path in self.paths:
            for number, fields in enumerate(read_lines(path), 1):
                yield Row(f"{path}:{number}", f"line-{number}", fields)


def open_results(path: Path | Sequence[Path], labels: Path | None = None) -> Replay:
    """Open a result file of tirjudge, which may still be written; of rows with the same id the first counts.

    Several files are one run.

    A file of `labels` replaces those of the rows. Raises OSError for a missing file. Iterating raises
    ValueError as that of every `Replay` does.
    """
    known = None if labels is None else LabelFile(RunFiles([labels]), str(labels), BY_KEYS)
    own = _CompleteRows([path] if isinstance(path, Path) else path)
    return Replay(own, STORED_OUTPUTS.load("tirjudge"), labels=known, duplicates="first")


def stored_output_formats() -> tuple[StoredOutputFormat, ...]:
    """Return every format, sorted by name. Raises ValueError for an entry that cannot be imported."""
    return tuple(map(STORED_OUTPUTS.load, STORED_OUTPUTS.names()))


def _format(files: RunFiles | SwappedFiles, first: Row, name: str) -> StoredOutputFormat:
    if name:
        named: StoredOutputFormat = STORED_OUTPUTS.load(name)
        return named
    path = files.paths[0]
    found = [one for one in stored_output_formats() if one.recognises(first.fields)]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise ValueError(f"{path}: its first row fits several formats; name one with --format ({names})")
    if not found:
        names = ", ".join(STORED_OUTPUTS.names())
        raise ValueError(
            f"{path}: its first row fits no format of stored outputs ({names}), of which tirjudge is what "
            "tirjudge judge writes; --column prediction=COLUMN --column label=COLUMN reads any other"
        )
    return found[0]


class _Hashes:
    """A set of hashes of 64 bits that takes 13 bytes for each, where a Python set takes 70.

    Two of a million rows have the same hash in one of 40 million runs.
    """

    def __init__(self) -> None:
        self._sorted, self._recent = array("q"), set[int]()

    def add(self, value: int) -> bool:
        """Add a hash; return False if it was there."""
        place = bisect_left(self._sorted, value)
        if value in self._recent or (place < len(self._sorted) and self._sorted[place] == value):
            return False
        self._recent.add(value)
        if len(self._recent) > max(_FEW, len(self._sorted) // 16):
            self._sorted.extend(self._recent)
            np.frombuffer(self._sorted, dtype=np.int64).sort()
            self._recent.clear()
        return True


_FEW = 10_000
"""Hashes up to which sorting them is not worth its time."""


class _Scales:
    """The numbers of the scaled columns, counted over a file, with the place of the first of each kind."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self._counts: list[tuple[Scale, Counter[float], dict[float, str]]] = [
            (scale, Counter(), {}) for scale in scales
        ]

    def add(self, row: Row) -> None:
        for scale, counts, first in self._counts:
            for value in scale.values(row.fields):
                number = _kind(value)
                if number is None:
                    continue
                counts[number] += 1
                if number not in first:
                    first[number] = row.where

    def check(self) -> None:
        """Raise ValueError for a column whose numbers are on another scale."""
        for scale, counts, first in self._counts:
            if counts and (fault := scale.fault(counts)):
                where = first.get(0.0) or first.get(1.0) or next(iter(first.values()))
                raise ValueError(f"{where}: {scale.column} {fault}")


class _Swaps:
    """The names in the verdicts on both orders, which the user says are those of places or of responses."""

    def __init__(self, format: StoredOutputFormat) -> None:
        self._part = format.swapped if isinstance(format, VerdictFile) else ""
        self._counts: Counter[tuple[bool, bool]] = Counter()

    def add(self, judged: JudgedRow) -> None:
        for sample in judged.samples if self._part else ():
            votes = judged.sample(sample)
            if all(vote.choice is not None for vote in votes):
                first, second = (vote.choice == 0 for vote in votes)
                self._counts[first, second] += 1

    def check(self, name: str) -> None:
        """Raise ValueError if the responses that are named differ between the orders by more than chance.

        Whoever looks at the responses names the same response in both orders, and whoever looks at the place
        alone names it by chance as often.
        """
        n = self._counts.total()
        if n < _ENOUGH_SWAPPED:
            return
        same = (self._counts[True, True] + self._counts[False, False]) / n
        one, other = (sum(count for names, count in self._counts.items() if names[run]) / n for run in (0, 1))
        chance = one * other + (1 - one) * (1 - other)
        if chance <= 0 or (chance - same) / chance <= _OTHER_NAMES:
            return
        if self._part == "place_swapped":
            raise ValueError(
                f"{name}: {1 - same:.0%} of the verdicts name the same letter in both orders, so that the "
                "swapped ones seem to name the response and not its place: give them as prediction_swapped"
            )
        raise ValueError(
            f"{name}: {1 - same:.0%} of the verdicts name another response in the other order, so that the "
            "swapped ones seem to name the place and not the response: give them as place_swapped"
        )


_ENOUGH_SWAPPED = 20
_OTHER_NAMES = 0.3
"""How much less often than by chance the orders name the same response where the names are misread."""


def _kind(value: Any) -> float | None:
    """Return 0 or 1, OTHER for other numbers, None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or is_unlabelled(value):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number in (0, 1) else OTHER


def _reason(error: Exception) -> str:
    """Return what is wrong with a row, without the words of Python."""
    if isinstance(error, KeyError):
        return f"no column {error}"
    if type(error) is ValueError:
        return str(error)
    return "a value of another kind than the format's"


def _check(judged: JudgedRow) -> None:
    """Raise ValueError, in one line, for values that no protocol could score: files may be hostile."""
    try:
        _JUDGED_ROW.validate_python(judged)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    seen: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
    largest = -1 if judged.label is None else judged.label
    for vote in judged.votes:
        if vote.order and seen.setdefault((vote.order, vote.sample), vote.best) != vote.best:
            raise ValueError("two different verdicts on the same order and sample")
        largest = max(largest, *vote.best, *vote.order, *vote.scores, -1)
    if largest >= judged.candidates:
        raise ValueError(f"candidate {largest} of {judged.candidates}")
