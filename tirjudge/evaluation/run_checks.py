"""Consistency checks of whole runs: rows against the benchmark, labels against another run.

Both watch rows on their way to a protocol, so that a run is not read again for them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.row_ids import RowIds

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TIED, _UNLABELLED = -1, -2
"""Codes next to the indices of labels."""


class BenchmarkRows:
    """Compares the rows of a run with those of a benchmark's standard parts, which papers print figures on.

    Rows of a group (`group=ID`) count as one.
    """

    def __init__(self, benchmark: str) -> None:
        """Any rows are right if the benchmark or its number of rows is not known."""
        self._benchmark = open_benchmark(benchmark) if benchmark in benchmark_names() else None
        parts = () if self._benchmark is None else self._benchmark.chosen_parts()
        sizes = [part.rows for part in parts if part.rows is not None]
        countable = self._benchmark is not None and self._benchmark.row_by_row and len(sizes) == len(parts)
        self._parts = parts if countable else ()
        self._expected = sum(sizes)
        self._groups = RowIds()
        self._count = 0
        self._ids: list[str] = []
        self._sections: Counter[str] = Counter()

    def watch(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of a run, in which no row occurs twice; they are counted from the start."""
        self._groups, self._count, self._ids, self._sections = RowIds(), 0, [], Counter()
        for row in rows:
            if self._parts:
                self._add(row)
            yield row

    @property
    def fault(self) -> str:
        """Return the difference of the rows, such as `270 of 350 rows`; empty if all rows are there."""
        if not self._parts or self._benchmark is None:
            return ""
        if self._count != self._expected:
            return f"{self._count} of {self._expected} rows"
        digest = ids_digest(self._ids)
        alone = len(self._parts) == 1
        foreign = alone and bool(self._parts[0].ids) and self._parts[0].ids != digest
        sections = self._benchmark.sections
        if foreign or (sections and dict(self._sections) != dict(sections)):
            return f"{self._count} rows that are not those of {self._benchmark.name}"
        return ""

    def _add(self, row: JudgedRow) -> None:
        group = row.tag("group")
        if group and not self._groups.add(repr((row.domain, group))):
            return
        self._count += 1
        self._sections[row.domain] += 1
        # The ids matter only if there are as many as the benchmark has.
        if self._count <= self._expected:
            self._ids.append(group or row.id)


def ids_digest(ids: Iterable[str]) -> str:
    """Return a digest of a set of row ids, as `Part.ids` holds it."""
    return blake2b("\n".join(sorted(ids)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class LabelCheck:
    """Compares the labels of two runs, of which the first is read before the second."""

    def __init__(self, names: tuple[str, str]) -> None:
        """`names` are the names of the runs for messages."""
        self._names = names
        self._known = RowIds()
        self._labels = array("q")

    def first(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of the first run; of rows with the same id and section the first counts."""
        self._known, self._labels = RowIds(), array("q")
        for row in rows:
            if self._known.add(_key(row)):
                self._labels.append(_label(row))
            yield row

    def second(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of the second run. Raises ValueError for one with another label in the first."""
        for row in rows:
            place = self._known.find(_key(row))
            if place >= 0:
                self._check(row, self._labels[place])
            yield row

    def _check(self, row: JudgedRow, before: int) -> None:
        after = _label(row)
        if before != after and _UNLABELLED not in (before, after):
            raise ValueError(
                f"row {row.id!r}: its label is {_shown(before)} in {self._names[0]} and {_shown(after)} in "
                f"{self._names[1]}"
            )


def _key(row: JudgedRow) -> str:
    # RMB numbers rows in each section from 0.
    return repr((row.domain, row.id))


def _label(row: JudgedRow) -> int:
    if row.label is not None:
        return row.label
    return _TIED if row.tied else _UNLABELLED


def _shown(label: int) -> str:
    if label == _TIED:
        return "a tie"
    return _LETTERS[label] if label < len(_LETTERS) else str(label)
