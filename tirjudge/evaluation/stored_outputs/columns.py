"""Files without a format of their own: verdicts or scores in columns that the user names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from tirjudge.data.rows import Row
from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.stored_outputs.base import (
    OTHER,
    Record,
    Scale,
    Unreadable,
    as_number,
    pair_vote,
    read_choice,
    read_strength,
    shown,
)
from tirjudge.evaluation.stored_outputs.files import KEYS, JoinedBy
from tirjudge_environments.tasks import ColumnPlaces, RowError
from tirjudge_environments.tasks.labels import is_unlabelled

_VERDICTS = ("prediction", "prediction_swapped", "place_swapped")
_SEVERAL: tuple[str, ...] = ("scores",)
_SCORES: tuple[tuple[str, ...], ...] = (("score_a", "score_b"), ("score_chosen", "score_rejected"), _SEVERAL)
_OWN, _SWAPPED = (0, 1), (1, 0)
_ORDERS = ("both-orders", "net-vote", "one-order", "position")
_ONE = ("one-order", "tir", "three-class")
_BEST_OF_K = ("rewardbench2", "rewardbench2-ties", "rewardbench2-overall", "tir")
_WHO_WON = ("win-rate", "length-controlled")


class VerdictColumns(ColumnPlaces):
    """The places of verdicts, scores and labels in the rows of any file.

    A row has a verdict on a pair (`prediction`), or a score for each response: `score_a` and `score_b`, or
    `score_chosen` and `score_rejected`, where the chosen one is the label. A list of verdicts or of scores
    has several samples of the row. A file that is one object of lists, one list for each column, has a row
    for each place of the lists.
    """

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"sources", "responses"})

    id: str = "id"
    prediction: str = "prediction"
    prediction_swapped: str = "prediction_swapped"
    """The verdict with the responses swapped, which names the response: A is the same as in `prediction`."""
    place_swapped: str = "place_swapped"
    """The verdict with the responses swapped, which names the place: A was shown first."""
    score_a: str = "score_a"
    score_b: str = "score_b"
    score_chosen: str = "score_chosen"
    score_rejected: str = "score_rejected"
    scores: str = "scores"
    """A score for each of several responses."""
    correct: str = "num_correct"
    """The number of right responses, which come first in `scores`."""
    rating: str = "rating"
    """The judge's rating of one response; a list has several samples."""
    label: str = "label"
    domain: str = "domain"
    sources: str = ""
    """Names of the responses' sources, a list: `model_a,model_b`. Without them, the names of the columns
    that hold one response each: `responses=gpt_answer,claude_answer`."""
    responses: str = ""
    """The responses, or the number of characters of each."""
    names: Mapping[str, str] | None = Field(default=None, exclude=True)
    """Meaning of the values of verdicts and labels: {"1": "A", "2": "B", "0": "tie"}."""

    @classmethod
    def parts(cls) -> tuple[str, ...]:
        """Return the names of the parts, the left sides of `--column PART=PLACE`."""
        return tuple(name for name in cls.model_fields if name != "names")

    def meaning(self, names: Mapping[str, str]) -> VerdictColumns:
        """Return the same columns, whose values have this meaning: {"1": "A", "2": "B", "0": "tie"}."""
        return self.model_copy(update={"names": dict(names)})

    def format(self, *, one_object: bool = False) -> VerdictFile | RatingFile:
        """Return the format of these columns, for a file that is `one_object` or has several rows.

        Raises ValueError if they name no verdict or score.
        """
        return RatingFile(self) if self.has("rating") else VerdictFile(self, one_object=one_object)

    def joined_by(self, first: Record) -> JoinedBy:
        """Return what joins labels, for a file with this first row: the named id, or `id` before others."""
        try:
            named = self.has("id") and self.find(first, "id") is not None
        except RowError:
            named = False  # an object of lists, whose rows have no id of their own to join by
        if named:
            return JoinedBy(key=self.row_id)
        return JoinedBy(tuple(dict.fromkeys(("id", *KEYS))))

    def row_id(self, row: Record) -> str:
        """Return a row's id. Raises Unreadable if it has none."""
        value = self.value(row, "id")
        if value is None or value == "" or isinstance(value, list | Mapping):
            raise Unreadable(f"{self.id} is {shown(value)}, not an id", row)
        # Places that are joined, `subset+id`, make up one name.
        return str(value).replace("\n\n", "/") if "+" in self.id else str(value)

    def named(self, row: Record, default_id: str) -> tuple[str, str]:
        """Return a row's id and domain. Raises Unreadable for a domain that was named and is empty."""
        domain = self.value(row, "domain")
        if self.has("domain") and domain in (None, ""):
            raise Unreadable(f"{self.domain} is {shown(domain)}, not a domain")
        id = self.row_id(row) if self.value(row, "id") is not None else default_id
        return id, "" if domain is None else str(domain)

    def numbers(self, row: Record, part: str) -> list[float | None]:
        """Return the numbers of a part, which may be a list, None for a missing one. Raises Unreadable."""
        value, name = self.value(row, part), getattr(self, part)
        values = value if isinstance(value, list) else [value]
        return [None if is_unlabelled(one) else as_number(one, name, row) for one in values]

    def correct_ones(self, row: Record, candidates: int) -> int | None:
        """Return the number of right responses, None if the part was not named. Raises Unreadable."""
        if not self.has("correct"):
            return None
        (found,) = self.numbers(row, "correct")[:1] or [None]
        if found is None or found != int(found) or not 0 < found < candidates:
            raise Unreadable(f"{self.correct} is {shown(found)}, and there are {candidates} responses", row)
        return int(found)

    def sources_of(self, row: Record, candidates: int) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Return the sources and the lengths of the responses, if any are named. Raises Unreadable."""
        found: dict[str, list[Any]] = {}
        for part in ("sources", "responses"):
            value = self.value(row, part) if self.has(part) else None
            if value is None:
                continue
            if not isinstance(value, list) or len(value) != candidates:
                raise Unreadable(f"{getattr(self, part)} is {shown(value)}, not a list of {candidates}", row)
            found[part] = value
        columns = self.responses.split(",")
        if "responses" in found and len(columns) == candidates:
            found.setdefault("sources", [one.strip() for one in columns])
        lengths = tuple(_length(one, self.responses, row) for one in found.get("responses", ()))
        return tuple(map(str, found.get("sources", ()))), lengths

    def swap(self, row: Record, other: Record) -> Record:
        """Return a row with the verdict of `other`, the same row judged with the responses swapped.

        Raises Unreadable if their ids differ.
        """
        first, second = (self.value(one, "id") for one in (row, other))
        if first != second and None not in (first, second):
            raise Unreadable(f"its id is {shown(second)}, but that of the row in its place is {shown(first)}")
        return {**row, self.place_swapped: self.value(other, "prediction")}

    def has(self, part: str) -> bool:
        """Return True if the part was named."""
        return part in self.model_fields_set

    def value(self, row: Record, part: str) -> Any:
        """Return the value of a part, None if it was not named and is absent. Raises Unreadable."""
        try:
            return self.find(row, part)
        except RowError as error:
            raise Unreadable(str(error), row) from None


class VerdictFile:
    """The format of files whose columns are named by `--column`."""

    name = "columns"
    about = "any file, whose columns are named by --column"
    benchmark = ""

    def __init__(self, columns: VerdictColumns, *, one_object: bool = False) -> None:
        self._columns = columns
        self._one_object = one_object
        pairs = [pair for pair in _SCORES if any(map(columns.has, pair))]
        verdicts = [part for part in _VERDICTS if columns.has(part)]
        for pair in pairs:
            for part in pair:
                if not columns.has(part):
                    raise ValueError(f"--column needs both {'=COLUMN and '.join(pair)}=COLUMN")
        if len(pairs) + bool(verdicts) != 1 or len(verdicts) > 1 + columns.has("prediction"):
            raise ValueError(
                "--column needs either prediction=COLUMN (and prediction_swapped or place_swapped), or "
                "score_a and score_b, or score_chosen and score_rejected, or scores, or rating"
            )
        self._scores = pairs[0] if pairs else None
        self._verdicts = verdicts
        self._may_lack: frozenset[str] = frozenset()

    def look_into(self, rows: Iterable[Row]) -> None:
        """Find the places of verdicts: where a row has one, another row without it has no verdict.

        Games that were not played, or that are null, are such rows; a place that no row has is an error.
        """
        left = set(self._verdicts)
        for row in rows:
            left -= {part for part in left if self._raw(part, row.fields)}
            if not left:
                break
        self._may_lack = frozenset(self._verdicts) - left

    @property
    def swapped(self) -> str:
        """The part with the verdicts on the other order, if there are both; empty otherwise."""
        return self._verdicts[1] if len(self._verdicts) > 1 else ""

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocols of both orders, if there are verdicts in both, or else protocols of one order."""
        won = _WHO_WON if self._columns.has("sources") or self._columns.has("responses") else ()
        if self._scores == _SEVERAL:
            return (*won, *_BEST_OF_K)
        return (*won, *(_ORDERS if len(self._verdicts) > 1 else _ONE))

    @property
    def scales(self) -> tuple[Scale, ...]:
        """Numbers that are no indices from 0, unless the user has said what they mean."""
        if self._columns.names is not None:
            return ()
        parts = [*self._verdicts, *(["label"] if not self._columns.has("score_chosen") else [])]
        return tuple(
            Scale(getattr(self._columns, part), partial(self._raw, part), _from_one) for part in parts
        )

    def recognises(self, row: Record) -> bool:
        """Return False: only the user can name the columns."""
        return False

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterator[JudgedRow]:
        if not (several := self._lists(row)):
            yield self._judged(row, label, default_id)
            return
        if label is not None:
            raise Unreadable("its columns are lists, with which --labels cannot be joined")
        for number, one in enumerate(several, 1):
            try:
                yield self._judged(one, None, f"{default_id}/{number}")
            except Unreadable as error:
                raise Unreadable(f"place {number} of the lists: {error}") from None

    def _judged(self, row: Record, label: Record | None, default_id: str) -> JudgedRow:
        id, domain = self._columns.named(row, default_id)
        scores = self._columns.numbers(row, "scores") if self._scores == _SEVERAL else None
        candidates = 2 if scores is None else len(scores)
        if candidates < 2:
            raise Unreadable(
                f"{self._columns.scores} has {candidates} scores: rating=PLACE reads ratings", row
            )
        correct = self._columns.correct_ones(row, candidates)
        best = self._label(row, label, candidates) if correct is None else tuple(range(correct))
        sources, lengths = self._columns.sources_of(row, candidates)
        return JudgedRow(
            id=id,
            votes=tuple(self._samples(row)) if scores is None else (_best_of(scores),),
            candidates=candidates,
            label=best[0] if len(best) == 1 else None,
            tied=len(best) > 1 and correct is None,
            domain=domain,
            tags=() if correct is None else (f"correct={correct}",),
            sources=sources,
            lengths=lengths,
        )

    def _samples(self, row: Record) -> Iterator[Vote]:
        """Yield the votes of each sample: of a row with lists, one for each place of the lists."""
        parts = self._verdicts if self._scores is None else self._scores
        values: dict[str, Any] = {
            part: self._columns.value(row, part)
            if part not in self._may_lack or self._raw(part, row)
            else None
            for part in parts
        }
        lists = {part: value for part, value in values.items() if isinstance(value, list)}
        count = max(map(len, lists.values()), default=1)
        for part, value in lists.items():
            if len(value) != count or len(lists) < len(values):
                raise Unreadable(f"{getattr(self._columns, part)} has {len(value)} samples, others differ")
        for number in range(count):
            drawn = {part: value[number] if part in lists else value for part, value in values.items()}
            for vote in self._votes(row, drawn):
                yield replace(vote, sample=number)
        if not count:
            yield Vote(best=(), order=_OWN if self._scores is None else (), stop="malformed")

    def _votes(self, row: Record, values: Mapping[str, Any]) -> Iterator[Vote]:
        if self._scores is None:
            yield from (self._vote(row, part, value) for part, value in values.items())
        elif any(value in (None, "") for value in values.values()):
            yield Vote(best=(), stop="malformed")
        else:
            first, second = (as_number(one, getattr(self._columns, part)) for part, one in values.items())
            yield Vote(best=pair_vote(first, second), scores={0: first, 1: second})

    def _vote(self, row: Record, part: str, value: Any) -> Vote:
        choice = self._choice(row, part, value)
        order = _OWN if part == "prediction" else _SWAPPED
        best = tuple(sorted(order[place] for place in choice)) if part == "place_swapped" else choice
        strength = read_strength(value, self._columns.names)
        return Vote(best=best, order=order, stop="verdict" if best else "malformed", strength=strength)

    def _label(self, row: Record, label: Record | None, candidates: int) -> tuple[int, ...]:
        if self._columns.has("score_chosen"):
            return (0,)
        source = row if label is None else label
        return self._choice(source, "label", self._columns.value(source, "label"), candidates)

    def _choice(self, row: Record, part: str, value: Any, candidates: int = 2) -> tuple[int, ...]:
        try:
            return read_choice(value, candidates, self._columns.names)
        except ValueError as error:
            raise Unreadable(f"{getattr(self._columns, part)} is {error}", row) from None

    def _lists(self, row: Record) -> list[dict[str, Any]]:
        """Return the rows of an object of lists, whose verdicts or scores are lists; empty for others."""
        if not self._one_object:
            return []
        parts = self._scores or self._verdicts
        column = self._columns.value(row, parts[0])
        if not isinstance(column, list) or (
            parts == _SEVERAL and not all(isinstance(one, list) for one in column)
        ):
            return []
        lists = {name: value for name, value in row.items() if isinstance(value, list)}
        same = {name: value for name, value in lists.items() if len(value) == len(column)}
        if any(self._is_single(row, part) for part in ("id", "label")):
            return []  # the only row of a file, with several samples
        for part in ("id", *parts, "label", "domain", "correct"):
            name = getattr(self._columns, part)
            if name in lists and name not in same:
                raise Unreadable(f"{name} has {len(lists[name])} values, not {len(column)}")
        shared = {name: value for name, value in row.items() if name not in lists}
        return [
            {**shared, **dict(zip(same, values, strict=True))} for values in zip(*same.values(), strict=True)
        ]

    def _is_single(self, row: Record, part: str) -> bool:
        """Return True if a row has one value of a part, and no list."""
        try:
            value = self._columns.find(row, part)
        except RowError:
            return False
        return value is not None and not isinstance(value, list)

    def _raw(self, part: str, row: Record) -> list[Any]:
        try:
            value = self._columns.find(row, part)
        except RowError:
            return []
        return value if isinstance(value, list) else [value]


def _length(response: Any, column: str, row: Record) -> float:
    """Return the number of characters of a response, which may be that number itself. Raises Unreadable."""
    if isinstance(response, bool) or not isinstance(response, int | float):
        return len(response if isinstance(response, str) else json.dumps(response))
    number = as_number(response, column, row)
    if number < 0:
        raise Unreadable(f"{column} is {shown(response)}, neither a text nor its length", row)
    return number


def _best_of(scores: list[float | None]) -> Vote:
    """Return the vote for the highest of several scores; without a verdict if one is missing."""
    known = {place: one for place, one in enumerate(scores) if one is not None}
    best = tuple(place for place, one in known.items() if one == max(known.values()))
    complete = len(known) == len(scores)
    return Vote(best=best if complete else (), scores=known, stop="verdict" if complete else "malformed")


_SENTINEL = -1.0
"""A number that files write where a rating is missing."""


class RatingFile:
    """The format of files in which `--column rating=PLACE` names a judge's ratings of single responses."""

    name = "columns"
    about = VerdictFile.about
    benchmark = ""
    protocols = ("ratings",)

    def __init__(self, columns: VerdictColumns) -> None:
        others = (*_VERDICTS, *sum(_SCORES, ()), "sources", "responses")
        stray = [part for part in others if columns.has(part)]
        if stray:
            raise ValueError(f"--column rating=PLACE is a rating of one response: leave out {stray[0]}")
        if columns.names is not None:
            raise ValueError("--column rating=PLACE takes numbers: leave out --labels VALUE=LETTER")
        self._columns = columns
        self._absent: frozenset[tuple[str, float | None]] = frozenset()
        """Parts with a number that stands for a missing rating."""

    def look_into(self, rows: Iterable[Row]) -> None:
        """Find where -1 is no rating: beside others from 0, one of them above 1."""
        found: dict[str, set[float]] = {"rating": set(), "label": set()}
        for row in rows:
            for part, values in found.items():
                with suppress(Unreadable):
                    values.update(one for one in self._columns.numbers(row.fields, part) if one is not None)
        scales = {part: values - {_SENTINEL} for part, values in found.items()}
        self._absent = frozenset(
            (part, _SENTINEL)
            for part, values in scales.items()
            if values and min(values) >= 0 and max(values) > 1
        )

    def _numbers(self, row: Record, part: str) -> list[float | None]:
        return [None if (part, one) in self._absent else one for one in self._columns.numbers(row, part)]

    def recognises(self, row: Record) -> bool:
        """Return False: only the user can name the columns."""
        return False

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterator[JudgedRow]:
        id, domain = self._columns.named(row, default_id)
        source = row if label is None else label
        people = self._numbers(source, "label")
        yield JudgedRow(
            id=id,
            votes=tuple(
                Vote(best=(), sample=number, stop="malformed")
                if one is None
                else Vote(best=(0,), scores={0: one}, sample=number)
                for number, one in enumerate(self._numbers(row, "rating"))
            ),
            candidates=1,
            domain=domain,
            ratings=tuple(people),
        )


def _from_one(counts: Mapping[float, int]) -> str:
    if 0.0 in counts or not (counts.keys() & {1.0, OTHER}):
        return ""
    return (
        "is never 0, so that its numbers may not be indices from 0: say what they mean, such as "
        "--labels 1=A,2=B or --labels 0=A,1=B"
    )
