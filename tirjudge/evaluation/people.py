"""Labels of people: a file with one or several annotators' classes for each row, joined with judged rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tirjudge.data.rows import Row
from tirjudge.evaluation.stored_outputs.base import Unreadable, read_choice, shown
from tirjudge.evaluation.stored_outputs.files import BY_KEYS, BadLabels, JoinedBy, LabelFile, RunFiles
from tirjudge_environments.orders import letter

TIE = -1
"""The class of a tie; the others are the indices of the candidates."""
NO_VERDICT = -2
"""The class of a missing verdict, which agrees with nobody."""
_NUMBERED = re.compile(r"annotator_?([0-9]{1,4})")
_PANDALM = {"0": "tie", "1": "A", "2": "B"}
_ENOUGH = 20
"""Rows of which one must have a 2, or a 0, unless the numbers are on another scale."""


class PeopleLabels:
    """The rows of a file of labels, with the annotators that any of its rows names.

    Columns are `annotator1`, `annotator2` and so on; or `annotators`, a list or an object of names; or else
    `label`. Rows are joined as by `--labels`, but may be labels of some rows alone. Raises ValueError, in one
    line, for a file without labels, two rows with the same key, and numbers on another scale; OSError.
    """

    def __init__(
        self, path: Path, meaning: Mapping[str, str] | None = None, join: JoinedBy = BY_KEYS
    ) -> None:
        """`meaning` says what the file's values mean: {"1": "A", "2": "B", "0": "tie"}."""
        self.name = str(path)
        self._rows = list(RunFiles([path]))
        if not self._rows:
            raise ValueError(f"{path} is empty")
        self._file = LabelFile(self._rows, self.name, join)
        self._meaning = meaning
        # Names inside the column `annotators` may look like columns, such as annotator1.
        self._numbered = any(_NUMBERED.fullmatch(str(name)) for row in self._rows for name in row.fields)
        self._nested = not self._numbered and any(_has_annotators(row.fields) for row in self._rows)
        self.annotators = self._names()
        if meaning is None:
            self._check_scale()
        self._used = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def joined_by(self) -> str:
        """Name of the column that rows are joined by; `position` without one."""
        return self._file.joined_by

    @property
    def unused(self) -> int:
        """Number of labels that no row of the run has asked for."""
        return len(self._rows) - self._used

    def check_length(self, rows: int, run: str) -> None:
        """Raise ValueError if labels that are joined by position are more or fewer than the run's rows."""
        self._file.check_length(rows, run)

    def classes(self, row: Row, candidates: int, position: int) -> tuple[int | None, ...] | None:
        """Return each annotator's class for a row of a run, None for an annotator without a label.

        `position` is the place of the row in its run, from 0. None if the file does not have the row. Raises
        ValueError, with file and line, for a label that cannot be read, and for a file that cannot be joined.
        """
        try:
            found = self._file.find(row, position)
        except BadLabels:
            raise
        except Unreadable as error:
            raise ValueError(f"{row.where}: {error}") from None
        if found is None:
            return None
        self._used += 1
        return tuple(self._class(found, value, candidates) for value in self._values(found))

    def _names(self) -> tuple[str, ...]:
        """Return the names of all annotators. Raises ValueError for a file without any."""
        fields = [row.fields for row in self._rows]
        if self._numbered:
            found = {
                (int(match[1]), str(name))
                for one in fields
                for name in one
                if (match := _NUMBERED.fullmatch(str(name)))
            }
            return tuple(name for _, name in sorted(found))
        given = [one["annotators"] for one in fields if _has_annotators(one)]
        objects = [one for one in given if isinstance(one, Mapping)]
        if objects:
            return tuple(dict.fromkeys(str(name) for one in objects for name in one))
        if given:
            return tuple(f"annotators[{number}]" for number in range(len(given[0])))
        if any("label" in one for one in fields):
            return ("label",)
        where = self._rows[0].where
        raise ValueError(f"{where}: no labels of people: a column annotator1, annotators or label")

    def _values(self, row: Row) -> Sequence[Any]:
        if not self._nested:
            return [row.fields.get(name) for name in self.annotators]
        given = row.fields.get("annotators")
        if given is None:
            return [None] * len(self.annotators)
        if isinstance(given, Mapping):
            return [given.get(name) for name in self.annotators]
        if isinstance(given, list) and len(given) == len(self.annotators):
            return given
        raise ValueError(
            f"{row.where}: annotators is {shown(given)}, and the first row has {len(self.annotators)} of them"
        )

    def _class(self, row: Row, value: Any, candidates: int) -> int | None:
        meaning = self._meaning
        if meaning is None and self._numbered and str(value).removesuffix(".0") in _PANDALM:
            meaning = _PANDALM
        try:
            best = read_choice(value, candidates, meaning)
        except ValueError as error:
            raise ValueError(f"{row.where}: a label is {error}") from None
        if not best:
            return None
        return TIE if len(best) > 1 else best[0]

    def _check_scale(self) -> None:
        """Raise ValueError for numbers that are on no known scale: they would be read as the wrong class."""
        values = Counter(str(value).removesuffix(".0") for row in self._rows for value in self._values(row))
        numbers = {value for value in values if value.isdecimal()}
        if not numbers or values.keys() - numbers - {"None", ""} or len(self._rows) < _ENOUGH:
            return
        if self._numbered and numbers == {"0", "1"}:
            raise ValueError(
                f"{self.name}: its labels are 0 or 1 and never 2, while annotators' numbers mean 0 (tie), 1 "
                "and 2: say what they mean, such as --labels 0=A,1=B"
            )
        if not self._numbered and "0" not in numbers:
            raise ValueError(
                f"{self.name}: its labels are never 0, so that they may not be indices from 0: say what they "
                "mean, such as --labels 1=A,2=B,0=tie"
            )


def majority(classes: Iterable[int | None]) -> int | None:
    """Return the class that more annotators chose than any other; None if there is none."""
    found = Counter(one for one in classes if one is not None).most_common(2)
    if not found or (len(found) > 1 and found[0][1] == found[1][1]):
        return None
    return found[0][0]


def class_name(number: int) -> str:
    """Return the letter of a candidate's class, `tie` or `no verdict`."""
    if number in (TIE, NO_VERDICT):
        return "tie" if number == TIE else "no verdict"
    return letter(number)


def _has_annotators(fields: Mapping[str, Any]) -> bool:
    given = fields.get("annotators")
    return isinstance(given, Mapping | list) and bool(given)
