"""Inspection of rows before they are judged: columns that need a mapping, labels, missing values."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import RowSource
from tirjudge.data.suggestions import column_options, labels_option, places_of, unread_note
from tirjudge_environments.files.placing import size_of
from tirjudge_environments.messages import whole_text
from tirjudge_environments.orders import letter
from tirjudge_environments.tasks import Columns, RowError, read_task
from tirjudge_environments.tasks.conversion import unread_columns
from tirjudge_environments.turn_reader import without_thinking

_SAMPLED = 1000
"""Rows from the start of a file that are inspected."""
_MOST_FILE_BYTES = 256 << 20
"""Bytes of files after which further rows are inspected without their files."""
_SHOWN_COLUMNS = 20
_MISSING_WORDS = frozenset(
    {"nan", "none", "null", "<na>", "\\n", "#n/a", "#name?", "#value!", "#ref!", "#error!"}
)
"""Texts that libraries, databases and spreadsheets write in place of a value, in lower case."""
_NUMERIC = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_FEW_NUMBERS = 0.05
"""Share of labels up to which numbers above every index are mistakes, and say nothing about the others."""
_AMBIGUOUS_FROM = 21
"""Fewest labelled rows for asking whether ambiguous labels count from 0 or from 1."""


@dataclass(slots=True)
class _Kind:
    """Rows that share a property."""

    about: str
    count: int = 0
    first: str = ""

    def add(self, where: str) -> None:
        self.count += 1
        self.first = self.first or where


class RowInspection:
    """Collects unusual properties of rows, to report each property once and not for every row."""

    def __init__(
        self,
        name: str,
        columns: Columns,
        labels: Mapping[str, str] | None,
        *,
        alike: bool = True,
        empty_loses: bool = False,
        whole: bool = True,
        thinking: bool = True,
    ) -> None:
        """`name` is the rows' name for messages; `columns` and `labels` are those of the run.

        `whole` reports columns that no part of the judge reads, `alike` identical responses. With
        `empty_loses` the note on empty responses says that.
        """
        self._alike, self._whole, self._thinking = alike, whole, thinking
        self._unread_columns: dict[str, None] = {}
        self._name, self._columns, self._labels = name, columns, labels
        self._unlabelled = columns.model_copy(update={"label": _NOWHERE})
        # Folders and archives, which the reading without the label has read.
        self._without_files = columns.model_copy(update={"files": "", "prompt_files": ""})
        self._unlabelled_without_files = self._without_files.model_copy(update={"label": _NOWHERE})
        self._files_left = _MOST_FILE_BYTES
        self._found: list[str] = []
        self._places: list[str] = []
        """Columns, and places inside of nested ones, of the first row."""
        self._failed: list[Mapping[str, Any]] = []
        """The fields of rows that could not be read, on which proposed options are tried."""
        self._rows = 0
        self._unreadable = ""
        """The first row that cannot be read, and why."""
        self._lacking: Counter[str] = Counter()
        """Number of rows by missing part or named column."""
        self._nested: Counter[str] = Counter()
        """Rows by the part that is an object or a list where a text is needed."""
        self._whole_labels: Counter[tuple[int, int]] = Counter()
        """Labels that are whole numbers, each with the row's number of responses, of several responses."""
        self._other_labels = 0
        self._alone: set[str] = set()
        """Labels of single responses, whole numbers without their decimals."""
        self._alone_rows = 0
        self._labels_found: Counter[str] = Counter()
        self._unread = _Kind("a label that names no response; such rows fail")
        self._unread_labels: Counter[str] = Counter()
        self._kinds = {
            "nan": _Kind("a response that is NaN, a missing value; such rows fail"),
            "empty": _Kind("an empty response" + ", which loses (--judge-empty judges it)" * empty_loses),
            "words": _Kind("a response that reads like a missing value (nan, None, null)"),
            "thinking": _Kind("a response with thinking, which is not judged (--judge-thinking judges it)"),
            "identical": _Kind("identical responses, between which no judge can choose"),
        }

    def add(self, row: Row | BadRow) -> None:
        if isinstance(row, BadRow):
            self._unreadable = self._unreadable or f"{row.where}: {row.reason}"
            return
        self._rows += 1
        if len(self._found) <= _SHOWN_COLUMNS:
            self._found += [name for name in row.fields if name not in self._found]
        self._places = self._places or list(places_of(row.fields))
        try:
            if self._whole:
                self._unread_columns |= dict.fromkeys(unread_columns(row.fields, self._columns))
            task = read_task(
                {**row.fields, _NOWHERE: None},
                default_id=row.default_id,
                columns=self._unlabelled if self._files_left > 0 else self._unlabelled_without_files,
                beside=row.beside,
            )
            self._files_left -= size_of((*task.files, task.prompt_files))
        except RowError as error:
            self._note_error(row, str(error))
            return
        texts = [whole_text(response).strip() for response in task.candidates]
        if not self._thinking:
            answers = [without_thinking(text).strip() for text in texts]
            self._note("thinking", row, answers != texts)
            texts = answers
        self._note("empty", row, any(not text for text in texts))
        self._note("words", row, any(text.lower() in _MISSING_WORDS for text in texts))
        # A response is its files as well.
        whole = list(zip(texts, task.files, strict=True)) if task.files else texts
        self._note("identical", row, self._alike and len(set(whole)) < len(whole) and any(texts))
        self._note_label(row, len(texts))
        try:
            read_task(row.fields, default_id=row.default_id, columns=self._without_files, labels=self._labels)
        except RowError as error:
            if str(error).startswith("label "):
                self._unread.add(row.where)
                self._unread_labels[str(self._columns.find(row.fields, "label")).strip()] += 1
            else:
                self._note_error(row, str(error))

    def fault(self) -> str:
        """Return why the rows cannot be meant as read, with the remedy; empty without such a fault."""
        if self._unreadable and not self._rows:
            return (
                f"{self._unreadable}; no row can be read: the file must be JSON lines, JSON, CSV or Parquet"
            )
        if self._rows and self._lacking.total() == self._rows:
            lacking, _ = self._lacking.most_common(1)[0]
            mapping = self.mapping()
            remedy = f": map them with {mapping}" if mapping else ""
            near = get_close_matches(lacking.partition("'")[2].partition("'")[0], self._found, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else remedy
            return f"{self._name}: no row has {lacking}; the columns are {self._columns_found()}{meant}"
        if self._rows and self._nested.total() == self._rows and (mapping := self.mapping()):
            reason, _ = self._nested.most_common(1)[0]
            columns = self._columns_found()
            return f"{self._name}: {reason}; the columns are {columns}: map them with {mapping}"
        if self._counted_from_one():
            return (
                f"{self._name}: the labels seem to be counted from 1, as none is 0 and some equal the "
                f"number of responses: give {self._counted(1)}"
            )
        if self._counted_from_either():
            return (
                f"{self._name}: the labels can be counted from 0 or from 1, as none is 0 or the number of "
                f"responses: give {self._counted(0)} or {self._counted(1)}"
            )
        if self._unread_numbers():
            return (
                f"{self._name}: the labels are numbers, and some are no index of a response, so that "
                f"the others may be none: {self._unread.count} of {self._labels_found.total()} "
                f"{self._labels_note(numbers=True)}"
            )
        if 2 * self._unread.count > self._labels_found.total():
            return f"{self._name}: {self._unread.count} of {self._labels_found.total()} {self._labels_note()}"
        return ""

    def meaning(self) -> Mapping[str, str] | None:
        """Return the meaning of the labels: as the run says, and classes for 0 and 1 of single responses.

        Numbers other than 0 and 1 are ratings, and 0 is one of them then.
        """
        given = self._labels or {}
        numbers = {value for value in self._alone if value not in given}
        if "0" in numbers and numbers <= {"0", "1"} and not any(given.values()):
            return {**given, "0": "fail", "1": "pass"}
        return self._labels

    def _counted(self, first: int) -> str:
        highest = max(count for _, count in self._whole_labels)
        return labels_option({str(number + first): letter(number) for number in range(highest)})

    def _labels_note(self, *, numbers: bool = False) -> str:
        """Return the labels that occur, and the option that maps them; with `numbers`, each number too."""
        shown = self._labels_found.most_common(_SHOWN_COLUMNS)
        found = ", ".join(f"{value!r} ({count})" for value, count in shown)
        more = ", ..." if len(self._labels_found) > len(shown) else ""
        unread = dict.fromkeys(value for value, _ in shown if value in self._unread_labels)
        alone = self._alone_rows == self._rows
        placeholder = "MEANING" if alone else "LETTER"
        unread |= dict.fromkeys(value for value, _ in shown if numbers and _NUMERIC.fullmatch(value))
        meanings = {value: placeholder if value in unread else value for value, _ in shown}
        what = "are neither numbers nor pass or fail" if alone else "name no response"
        choice = "pass, fail or a number" if alone else "A, B, ... or tie"
        return (
            f"labels {what}; the labels are {found}{more}: say what each means with "
            f"{labels_option(meanings)}, where {placeholder} is {choice}, or nothing for no label"
        )

    def notes(self) -> Iterator[str]:
        """Yield one line for each kind of unusual rows."""
        # Of a pipe, whose fault is said at the end, the labels are not reported twice.
        labels = () if self.fault() else (self._unread,)
        for kind in (*self._kinds.values(), *labels):
            if kind.count:
                rows = f"{kind.count} of {self._rows} inspected rows"
                have = "has" if kind.count == 1 else "have"
                yield f"{rows} {have} {kind.about} (first: {kind.first})"
        if self._unread_columns and not self.fault():
            yield unread_note(list(self._unread_columns))

    def columns_note(self) -> str:
        """Return the columns found, and the options that map them if they need any."""
        mapping = self.mapping()
        return f"columns: {self._columns_found()}" + (f"; map them with {mapping}" if mapping else "")

    def mapping(self) -> str:
        """Return the `--column` options for the columns found; COLUMN stands for an unknown one."""
        options = column_options(self._places, self._columns.model_fields_set, self._is_rating)
        # A column of several responses may have one answer of a server.
        tried = (options, options.replace("responses=", "response="))
        return options if "COLUMN" in options else next(filter(self._works, tried), "")

    def _works(self, options: str) -> bool:
        """Return True if with these options every row that failed has a prompt, and an answer to it."""
        named = dict(word.split("=", 1) for word in shlex.split(options)[1::2])
        # Labels that cannot be read get an option of their own.
        named |= {**self._columns.model_dump(exclude_unset=True), "label": _NOWHERE, "files": ""}
        columns, repeated = Columns(**named), 0
        for fields in self._failed:
            try:
                task = read_task({**fields, _NOWHERE: None}, default_id="", columns=columns)
            except RowError:
                return False
            repeated += any(whole_text(one) == task.prompt[-1].content for one in task.candidates)
        return repeated < len(self._failed) or not self._failed

    def _is_rating(self, place: str) -> bool:
        """Return True if the values at a place are people's judgements of single responses."""
        columns = Columns(label=place)
        try:
            values = [{"label": columns.find(fields, "label")} for fields in self._failed]
            read = [read_task({"prompt": "p", "response": "x", **one}, default_id="") for one in values]
        except RowError:
            return False
        return not read or any(task.gold for task in read)

    def _note_error(self, row: Row, reason: str) -> None:
        self._failed.append(row.fields)
        if reason.startswith("no column "):
            self._lacking[f"the column {reason.removeprefix('no column ')}"] += 1
        elif reason.startswith("no responses"):
            self._lacking["responses"] += 1
        elif reason.startswith("no prompt"):
            self._lacking["a prompt"] += 1
        elif reason.endswith(("an object, not a text", "a list, not a text")):
            self._nested[reason] += 1
        elif reason.endswith(" is NaN, a missing value") and reason.startswith("response "):
            self._kinds["nan"].add(row.where)

    def _note(self, kind: str, row: Row, holds: bool) -> None:
        if holds:
            self._kinds[kind].add(row.where)

    def _note_label(self, row: Row, count: int) -> None:
        self._alone_rows += count == 1
        try:
            value = self._columns.find(row.fields, "label")
        except RowError:
            return
        if value is None or value == "" or value != value:  # NaN differs from itself
            return
        self._labels_found[str(value).strip()] += 1
        text = str(value).strip().removesuffix(".0")
        if count == 1:
            self._alone.add(text)
        elif text.isdecimal():
            self._whole_labels[int(text), count] += 1
        else:
            self._other_labels += 1

    def _counted_from_one(self) -> bool:
        labels = self._whole_labels
        if self._labels is not None or self._other_labels or not labels:
            return False
        return all(1 <= label <= count for label, count in labels) and any(
            label == count for label, count in labels
        )

    def _counted_from_either(self) -> bool:
        """Return True for many labels, none of which equals 0 or the number of responses."""
        labels = self._whole_labels
        if self._labels is not None or self._other_labels or labels.total() < _AMBIGUOUS_FROM:
            return False
        return all(1 <= label < count for label, count in labels)

    def _unread_numbers(self) -> bool:
        """Return True if labels that are no index show that other numbers may be no indices either.

        Labels such as -1, 0 and 1, or 1, 0 and 0.5, or 0, 1 and 2 of a pair: 0 is a tie or the loss of A.
        """
        indices = sum(number for (label, count), number in self._whole_labels.items() if label < count)
        unread = {value: number for value, number in self._unread_labels.items() if _NUMERIC.fullmatch(value)}
        if self._labels is not None or not indices or not unread:
            return False
        if any(not value.removesuffix(".0").isdecimal() for value in unread):
            return True
        count = sum(unread.values())
        return count > 1 and count > _FEW_NUMBERS * self._labels_found.total()

    def _columns_found(self) -> str:
        shown = ", ".join(self._found[:_SHOWN_COLUMNS]) or "none"
        return shown + (", ..." if len(self._found) > _SHOWN_COLUMNS else "")


_NOWHERE = "\0"
"""The place of a part that no row has."""


@dataclass(slots=True)
class InspectedRows:
    """A source of rows whose start is inspected before judging; a pipe is inspected during reading."""

    source: RowSource
    columns: Columns
    labels: Mapping[str, str] | None
    unpack: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """Converts the fields of a row into the columns that are inspected."""
    alike: bool = True
    """True if identical responses are reported."""
    empty_loses: bool = False
    """True if an empty response loses against those with content."""
    thinking: bool = True
    """False if the thinking at the start of responses is left out."""
    name: str = field(init=False)
    _inspection: RowInspection = field(init=False)
    _count: int | None = field(init=False)
    _said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._inspection = RowInspection(
            self.source.name,
            self.columns,
            self.labels,
            alike=self.alike,
            empty_loses=self.empty_loses,
            whole=self.unpack is dict,
            thinking=self.thinking,
        )
        self.name, self._count = self.source.name, self.source.count()

    @property
    def _passing(self) -> bool:
        """True for a pipe, which can be read only once."""
        return self._count is None

    def __iter__(self) -> Iterator[Row | BadRow]:
        for row in self.source:
            if self._passing:
                self._inspect(row)
            yield row

    def _inspect(self, row: Row | BadRow) -> None:
        if isinstance(row, Row):
            try:
                row = replace(row, fields=self.unpack(row.fields))
            except ValueError:  # the run reports it
                return
        self._inspection.add(row)

    def count(self) -> int | None:
        return self._count

    def is_at(self, path: Path) -> bool:
        return self.source.is_at(path)

    def inspect(self) -> Iterator[str]:
        """Inspect the start and yield the notes; raises ValueError for rows that need an option."""
        if not self._passing:
            for row in islice(self.source, _SAMPLED):
                self._inspect(row)
        self._said = notes = list(getattr(self.source, "notes", ()))
        if not self._passing and (fault := self._inspection.fault()):
            raise ValueError("; ".join([fault, *notes]))
        if notes:
            notes = notes if self._passing else [*notes, self._inspection.columns_note()]
            yield f"{self.name}: {'; '.join(notes)}"
        if not self._passing:
            yield from (f"{self.name}: {note}" for note in self._inspection.notes())
            if self.meaning != self.labels:
                yield f"{self.name}: the labels 0 and 1 are read as fail and pass"

    @property
    def meaning(self) -> Mapping[str, str] | None:
        """The meaning of the labels of the inspected rows, see `RowInspection.meaning`."""
        return self.labels if self._passing else self._inspection.meaning()

    def left(self) -> Iterator[str]:
        """Yield findings since the inspection of the start."""
        yield from (
            f"{self.name}: {note}" for note in getattr(self.source, "notes", ()) if note not in self._said
        )
        if self._passing:
            fault = self._inspection.fault()
            yield from [fault] if fault else []
            yield from (f"{self.name}: {note}" for note in self._inspection.notes())
