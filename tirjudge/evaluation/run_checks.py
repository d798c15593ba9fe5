"""Checks of whole runs: their rows against the benchmark's, and their labels against another run's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from itertools import zip_longest

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def missing_rows(rows: Iterable[JudgedRow], benchmark: str) -> str:
    """Say how the rows differ from those of the benchmark's standard parts, which papers print figures on.

    Returns one line, such as `270 of 350 rows`; empty if all rows are there, and if the benchmark or its
    number of rows is not known. Rows of a group (`group=ID`) count as one.
    """
    if benchmark not in benchmark_names():
        return ""
    known = open_benchmark(benchmark)
    parts = known.chosen_parts()
    expected = [part.rows for part in parts if part.rows is not None]
    if len(expected) < len(parts) or not known.row_by_row:
        return ""
    found: dict[tuple[str, str], None] = {}
    sections: Counter[str] = Counter()
    for row in rows:
        unit = (row.domain, row.tag("group") or row.id)
        if unit not in found:
            found[unit] = None
            sections[row.domain] += 1
    if len(found) != sum(expected):
        return f"{len(found)} of {sum(expected)} rows"
    digest = ids_digest(id for _, id in found)
    foreign = [part.ids for part in parts if part.ids and part.ids != digest] if len(parts) == 1 else []
    if foreign or (known.sections and dict(sections) != dict(known.sections)):
        return f"{len(found)} rows that are not those of {benchmark}"
    return ""


def ids_digest(ids: Iterable[str]) -> str:
    """Return a digest of a set of row ids, as `Part.ids` holds it."""
    return blake2b("\n".join(sorted(ids)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def check_labels(first: Iterable[JudgedRow], second: Iterable[JudgedRow], names: tuple[str, str]) -> None:
    """Raise ValueError if two runs have different labels for a row; `names` are the names of the runs.

    Rows of the same order are compared one by one; only the others are held in memory.
    """
    waiting: tuple[dict[str, tuple[int | None, bool]], dict[str, tuple[int | None, bool]]] = ({}, {})
    for pair in zip_longest(first, second):
        if all(pair) and pair[0].id == pair[1].id:
            _check_label(pair[0].id, _label(pair[0]), _label(pair[1]), names)
            continue
        for place, row in enumerate(pair):
            if row is None:
                continue
            other = waiting[1 - place].pop(row.id, None)
            if other is None:
                waiting[place][row.id] = _label(row)
            else:
                both = (_label(row), other) if place == 0 else (other, _label(row))
                _check_label(row.id, *both, names)


def _label(row: JudgedRow) -> tuple[int | None, bool]:
    return row.label, row.tied


def _check_label(
    id: str, first: tuple[int | None, bool], second: tuple[int | None, bool], names: tuple[str, str]
) -> None:
    unlabelled = (None, False)
    if first != second and unlabelled not in (first, second):
        raise ValueError(
            f"row {id!r}: its label is {_shown(first)} in {names[0]} and {_shown(second)} in {names[1]}"
        )


def _shown(label: tuple[int | None, bool]) -> str:
    best, _ = label
    if best is None:
        return "a tie"
    return _LETTERS[best] if best < len(_LETTERS) else str(best)
