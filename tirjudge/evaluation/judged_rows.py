"""Judged rows, and the interface of a scoring protocol that turns them into numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from tirjudge.judging.votes import of_orders, of_samples
from tirjudge.statistics.estimators import Estimator, Statistic
from tirjudge.statistics.proportions import Proportion

_STRICT = ConfigDict(strict=True, revalidate_instances="always", hide_input_in_errors=True)
"""Settings of `TypeAdapter(JudgedRow)`: no coercion, and instances are checked field by field."""
_LARGEST = 10**15
Index = Annotated[int, Field(ge=0, lt=_LARGEST)]
Number = Annotated[float, Field(gt=-_LARGEST, lt=_LARGEST, allow_inf_nan=False)]


MODEL = "model"
"""Name of the tag that says whose outputs are compared with the baseline's."""
CLASSES = ("fail", "pass")
"""Names of the candidates of a row about a single response that passes or fails."""


class SummaryId(str):
    """The id of a row that was rebuilt from a summary: no row of another run is its counterpart."""

    __slots__ = ()


class Unscorable(ValueError):
    """A protocol cannot score these rows; the message says in one line what they lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One opinion on a whole row: one view of several responses, or all views of single responses."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    best: tuple[Index, ...]
    """Candidates in first place, sorted. One is a choice, several are a tie, none means no verdict."""
    order: tuple[Index, ...] = ()
    """The candidate at each position shown; empty if every response was judged alone."""
    scores: Mapping[Index, Number] = field(default_factory=dict)
    """Candidate to score. It may be incomplete, and may hold scores even if `best` is empty."""
    sample: Index = 0
    """Number of the sample that this vote belongs to, from 0."""
    stop: str = "verdict"
    """A `StopReason`: `verdict`, or how the first view without a verdict ended."""
    strength: Index = 1
    """How much better the candidate in first place is: 2 for `A>>B`, or else 1."""

    @property
    def choice(self) -> int | None:
        """The candidate in first place; None for a tie and without a verdict."""
        return self.best[0] if len(self.best) == 1 else None

    @property
    def tie(self) -> bool:
        """True if several candidates share the first place."""
        return len(self.best) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of judging one row: the sum over its views, turns and samples."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    prompt_tokens: Number = 0
    completion_tokens: Number = 0
    seconds: Number = 0.0
    calls: Number = 0
    """Programs that the judge asked to run."""


@dataclass(frozen=True, slots=True)
class Preference:
    """An annotator's preference between a baseline and the model of the tag `model`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    value: Number | None
    """From 1, the baseline's output is preferred, to 2, the model's; None if the annotation failed."""
    baseline: str = ""
    difficulty: Number | None = None
    """Of the instruction, if it is known."""


@dataclass(frozen=True, slots=True)
class MatchedReasons:
    """The match of a judge's reasons with those of people; None if the matching model gave no answer."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    recall: Number | None
    average_precision: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """A row with a judge's votes: everything that scoring needs, without the texts."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    id: str
    votes: tuple[Vote, ...]
    """Samples in order; within a sample, views in order, with the row's own order of responses first."""
    candidates: Index = 2
    """Number of responses."""
    label: Index | None = None
    """The best candidate; None if the label is a tie or unknown."""
    tied: bool = False
    """True if the label says that the best candidates are equal."""
    domain: str = ""
    """The section or subset that a benchmark averages over."""
    tags: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    """How each program ended: `ok`, `syntax`, `runtime`, `limit` (time, memory, output) or `refused`."""
    cost: Cost | None = None
    """None if the file does not record it."""
    cluster: str = ""
    """What the row has in common with other rows that depend on it, such as its prompt; empty for nothing."""
    verdict: tuple[Index, ...] | None = None
    """Candidates in first place of the recorded verdict, none without one; None if the votes decide."""
    left_open: bool = False
    """True if the verdict was left open for a low confidence."""
    decided: bool | None = None
    """True if programs decided the verdict, False if not; None if that is not known."""
    is_guess: bool = False
    """True if the verdict is a tie in place of a guess, which the votes name."""
    judge: str = ""
    """Name of the model that judged the row; empty if it is not known, and for a jury."""
    jury: Mapping[str, tuple[Index, ...]] = field(default_factory=dict)
    """For each model of a jury that voted, the candidates that it put in first place."""
    sources: tuple[str, ...] = ()
    """Name of the source of each response; empty if nobody named them."""
    lengths: tuple[Number, ...] = ()
    """Characters of each response; empty without the texts."""
    passes: bool = False
    """True for a single response that passes or fails: the candidates are `CLASSES`."""
    ratings: tuple[Number | None, ...] | None = None
    """Each person's rating of a single response; None for a row that is not rated."""
    scale: tuple[Number, Number] | None = None
    """The lowest and the highest score of the judge's scale; None if it is that of the ratings."""
    annotations: tuple[Index, ...] = ()
    """The class that each annotator gave."""
    preference: Preference | None = None
    """For rows of alpaca_eval."""
    reasons: MatchedReasons | None = None
    """For rows whose reasons were matched with those of people."""
    rate: Number | None = None
    """The share that a line of a published summary states."""

    def tag(self, name: str) -> str | None:
        """Return the value of the tag `name=value`, or None without one.

        `group=ID` joins rows that a benchmark counts as one: the nine pairs of an RM-Bench row, or the best
        response of an RMB set against each loser.
        """
        start = f"{name}="
        for tag in self.tags:
            if tag.startswith(start):
                return tag.removeprefix(start)
        return None

    @property
    def samples(self) -> tuple[int, ...]:
        """Numbers of the samples, in order."""
        return tuple(sorted({vote.sample for vote in self.votes}))

    def sample(self, number: int = 0) -> tuple[Vote, ...]:
        """Return the votes of one sample."""
        # A list comprehension takes half the time of a generator, and every row comes here.
        return tuple([vote for vote in self.votes if vote.sample == number])


def decision(row: JudgedRow) -> tuple[int, ...]:
    """Return the candidates in first place by all votes, as `tirjudge judge` combines them.

    Within a sample, orders that name several candidates make a tie; the candidate that most samples choose is
    the best. A recorded verdict is taken as it is. Empty without a verdict.
    """
    return votes_decision(row.votes) if row.verdict is None else row.verdict


def votes_decision(votes: Sequence[Vote]) -> tuple[int, ...]:
    """Return the candidates in first place by these votes, see `decision`."""
    numbers = sorted({vote.sample for vote in votes})
    return of_samples([sample_decision([vote for vote in votes if vote.sample == one]) for one in numbers])


def sample_decision(votes: Sequence[Vote]) -> tuple[int, ...]:
    """Return the candidates that the votes of one sample name; none if any vote has no verdict."""
    return of_orders([vote.best for vote in votes])


class Ids:
    """The ids of units, in one buffer: a tuple of a million strings takes four times the memory."""

    __slots__ = "_ends", "_hashes", "_text"

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._text = bytearray()
        self._ends = array("q")
        self._hashes = array("q")
        for id in ids:
            self.append(id)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: int) -> str:
        start = self._ends[place - 1] if place else 0
        return self._text[start : self._ends[place]].decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and self._ends == other._ends and self._text == other._text

    __hash__ = None  # type: ignore[assignment]  # ids are appended

    def append(self, id: str) -> None:
        """Add an id, which may be there already."""
        self._text += id.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text))
        self._hashes.append(hash(id))

    def repeated(self) -> str | None:
        """Return an id that occurs twice; None without one."""
        hashes = np.sort(np.frombuffer(self._hashes, dtype=np.int64))
        if not (hashes[1:] == hashes[:-1]).any():
            return None
        return next((id for id, count in Counter(self).items() if count > 1), None)

    def places_in(self, other: Ids) -> NDArray[np.intp]:
        """Return the place of each id in `other`, -1 for an id that is not there.

        Ids with the same hash of 64 bits, one pair among 10**19, are taken to be equal.
        """
        hashes, sought = (np.frombuffer(ids._hashes, dtype=np.int64) for ids in (other, self))
        order = np.argsort(hashes)
        places = order[np.searchsorted(hashes, sought, sorter=order).clip(max=len(order) - 1)]
        return np.where(hashes[places] == sought, places, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Measurements of a protocol, unit by unit; units are counted, resampled and paired between runs."""

    ids: Ids
    """Id of each unit's row, or group of rows; unique."""
    sections: Mapping[str, NDArray[np.intp]]
    """Positions of each section's units; every unit is in one section."""
    values: NDArray[np.float64]
    """Array of shape (units, measures). The first measure is a unit's credit, from 0 to 1, if units can be
    right or wrong; the others belong to the protocol. nan for a unit without a value."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of rows that the protocol's rules applied to: `no verdict`, `tie`, `left out: no label`, ..."""
    clusters: NDArray[np.intp] | None = None
    """The cluster of each unit, numbered from 0; None if no two units belong together."""
    names: tuple[str, ...] = ()
    """Names of the first measures where the rows name them: the sources of responses."""
    measures: tuple[str, ...] = ()
    """Names of the last measures, for protocols that read them by name."""
    paired: bool = True
    """False if ids do not identify rows across runs, because some rows were rebuilt from a summary."""

    def measure(self, name: str) -> NDArray[np.float64]:
        """Return one of the named `measures`, a number for each unit."""
        return self.values[:, self.measures.index(name) - len(self.measures)]


Figure = Estimator | Proportion | Statistic | float
Figures = Mapping[str, Figure]
"""Numbers by name in printing order, the headline first. An estimator knows what each unit adds to its error,
and so its interval and that of a difference, also for units in clusters. A Proportion has its own interval;
the others are bootstrapped. The n of a float is the number of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolCard:
    """Description of a protocol, one line per field."""

    name: str
    """Equals the name of the protocol's entry point."""
    about: str
    """What is counted."""
    ties: str
    """Credit of a tie."""
    failures: str
    """Credit of a row without a readable verdict."""
    source: str = ""
    """Paper and section, or the code that defines the protocol."""
    order: str = ""
    """The verdict of a row that counts, where protocols with the same figures differ in it."""
    percent: bool = True
    """True if figures are shares, printed as percentages; False if their names give the units."""
    missing_ties: bool = False
    """True if a row without a readable verdict counts as a tie; their number is printed beside the figure."""
    intervals: bool = True
    """False if the units are not a random draw, so that an interval would mean nothing."""

    @property
    def quoted(self) -> str:
        """The name for a line to quote, with the verdict that counts."""
        return f"{self.name} ({self.order})" if self.order else self.name


class ScoringProtocol(Protocol):
    """A stateless rule that turns judged rows into numbers; registered in the group `tirjudge.protocols`."""

    @property
    def card(self) -> ProtocolCard:
        """Description for listings, tables and the documentation."""

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        """Measure every row in one pass. Raises Unscorable if rows lack what the protocol needs."""

    def figures(self, units: Units) -> Figures:
        """Return the numbers of these units. In a resample a unit may occur several times."""
