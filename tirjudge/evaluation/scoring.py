"""Units of a protocol, scores of a run with their intervals, and comparisons of two runs."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.base import (
    Figures,
    JudgedRow,
    ProtocolCard,
    ScoringProtocol,
    SummaryId,
    Units,
    Unscorable,
    Vote,
)
from tirjudge.statistics import Proportion, Statistic
from tirjudge_environments.types import derive_seed

_DRAW = "evaluation order"
"""Part of the seed; another text would change which order of a row counts, and so published replays."""


class UnitsBuilder:
    """Collects the units of a protocol, and counts the rows that its rules applied to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._ids: dict[str, None] = {}
        # Arrays of machine numbers: a list of tuples takes ten times as much memory for a million rows.
        self._sections: dict[str, array[int]] = {}
        self._values = array("d")
        self._paired = True

    def add(self, id: str, section: str, *values: float) -> None:
        """Add a unit with its measures. Raises Unscorable for an id that was added before."""
        if id in self._ids:
            raise Unscorable(f"two rows have the id {str(id)!r}")
        self._ids[id] = None
        if section not in self._sections:
            self._sections[section] = array("q")
        self._sections[section].append(len(self._ids) - 1)
        self._values.extend(values)
        if len(self._values) != len(values) * len(self._ids):
            raise ValueError(f"unit {str(id)!r} has {len(values)} measures, other units have more or fewer")
        self._paired = self._paired and not isinstance(id, SummaryId)

    def build(self) -> Units:
        """Return the units. Raises Unscorable if there are none."""
        if not self._ids:
            reasons = ", ".join(f"{name} ({count})" for name, count in self.counts.items())
            raise Unscorable(f"no row can be scored{f': {reasons}' if reasons else ''}")
        return Units(
            ids=tuple(self._ids),
            sections={
                name: np.frombuffer(self._sections[name], dtype=np.int64) for name in sorted(self._sections)
            },
            values=np.frombuffer(self._values).reshape(len(self._ids), -1),
            counts=self.counts,
            paired=self._paired,
        )

    def labelled(self, rows: Iterable[JudgedRow]) -> Iterator[tuple[JudgedRow, int]]:
        """Yield rows whose label is one candidate among several, with it; count the others as left out."""
        for row in rows:
            if row.label is not None and row.candidates > 1:
                yield row, row.label
            else:
                reason = "a gold tie" if row.tied else "no label"
                self.counts[f"left out: {reason}"] += 1

    def count_outcomes(self, *votes: Vote) -> None:
        """Count ties and missing verdicts among the votes."""
        for vote in votes:
            if name := _outcome(vote):
                self.counts[name] += 1


def section_means(units: Units, values: NDArray[np.float64]) -> dict[str, float]:
    """Return the mean of `values`, one per unit, in each section."""
    return {name: float(values[places].mean()) for name, places in units.sections.items()}


def drawn_vote(row: JudgedRow, *, sample: int = 0, seed: int = 0) -> Vote:
    """Return one vote of a sample; a row judged in several orders is drawn from, seeded by its id.

    Raises Unscorable if the row has no vote of this sample.
    """
    votes = row.sample(sample)
    if not votes:
        raise Unscorable(f"row {row.id!r} was not judged")
    if len(votes) == 1:
        return votes[0]
    draw = np.random.default_rng(derive_seed(seed, _DRAW, row.id))
    return votes[int(draw.integers(len(votes)))]


def sampled_votes(row: JudgedRow) -> list[Vote]:
    """Return one vote of every sample, all in the same order. Raises Unscorable if there are none."""
    return [drawn_vote(row, sample=sample) for sample in row.samples or (0,)]


def own_order(row: JudgedRow) -> Vote:
    """Return the vote on the candidates in the row's order. Raises Unscorable without one."""
    return _ordered(row, tuple(range(row.candidates)), "its own order")


def reversed_order(row: JudgedRow) -> Vote:
    """Return the vote on the candidates in reversed order. Raises Unscorable without one."""
    return _ordered(row, tuple(reversed(range(row.candidates))), "the reversed order")


def credit(vote: Vote, label: int, *, share_ties: bool) -> float:
    """Return 1 for the label; with `share_ties` 1 / k for a tie of k that includes it; otherwise 0."""
    if vote.tie and not share_ties:
        return 0.0
    return 1 / len(vote.best) if label in vote.best else 0.0


def _outcome(vote: Vote) -> str | None:
    if vote.tie:
        return "tie"
    return None if vote.best else "no verdict"


def _ordered(row: JudgedRow, order: tuple[int, ...], name: str) -> Vote:
    for vote in row.sample():
        if vote.order == order:
            return vote
    if not all(vote.order for vote in row.sample()):
        raise Unscorable(f"the responses of row {row.id!r} were judged one by one, so there is no order")
    raise Unscorable(f"row {row.id!r} was not judged in {name}: judge it with --order both")


_ROWS_PER_KIND = 32
"""Counting how often each kind of row is drawn is faster than drawing rows if a kind has this many rows."""

RESAMPLES = 1000
"""Samples behind an interval."""
_CENTRAL = (2.5, 97.5)
"""Percentiles that bound the central 95 %."""

Values = NDArray[np.float64]


def central_interval(draws: Values | Sequence[float]) -> tuple[float, float]:
    """Return the bounds of the central 95 % of the values in samples; nan without a value."""
    known = np.asarray(draws, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.percentile(known, _CENTRAL)
    return float(low), float(high)


def bootstrap_samples(
    runs: Sequence[Units], resamples: int, seed: int | np.random.SeedSequence
) -> Iterator[list[Units]]:
    """Yield samples of the runs' units with replacement, with the same draw for every run.

    The units of the runs must be aligned. A sample has as many units of each section as the runs, and its
    ids are meaningless. Samples depend on the units but not on their order: the units of a section are drawn
    in the order of their ids. Equal units are counted together, because a million rows that are right or
    wrong need two numbers, not a million.
    """
    generator = np.random.default_rng(seed)
    strata = _strata(runs)
    size = sum(stratum.size for stratum in strata)
    sections, start = {}, 0
    for stratum in strata:
        sections[stratum.name] = np.arange(start, start + stratum.size)
        start += stratum.size
    widths = [run.values.shape[1] for run in runs]
    columns = [slice(end - width, end) for width, end in zip(widths, np.cumsum(widths), strict=True)]
    # One buffer for all samples: whoever keeps a sample's values must copy them.
    sample = np.empty((size, sum(widths)))
    for _ in range(resamples):
        start = 0
        for stratum in strata:
            stratum.draw(generator, sample[start : start + stratum.size])
            start += stratum.size
        yield [
            replace(run, values=sample[:, place], sections=sections)
            for run, place in zip(runs, columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Stratum:
    """A section's units."""

    name: str
    size: int
    kinds: Values
    """Array of shape (kinds, measures of all runs)."""
    shares: Values | None
    """Share of each kind; None if `kinds` are the units themselves."""

    def draw(self, generator: np.random.Generator, into: Values) -> None:
        """Fill an array of shape (size, measures) with a sample."""
        if self.shares is None:
            np.take(self.kinds, generator.integers(self.size, size=self.size), axis=0, out=into, mode="clip")
        else:
            into[:] = np.repeat(self.kinds, generator.multinomial(self.size, self.shares), axis=0)


def _strata(runs: Sequence[Units]) -> list[_Stratum]:
    first = runs[0]
    ranks = np.empty(len(first.ids), dtype=np.intp)
    ranks[sorted(range(len(first.ids)), key=first.ids.__getitem__)] = np.arange(len(first.ids))
    strata = []
    for name in sorted(first.sections):
        places = first.sections[name]
        places = places[np.argsort(ranks[places])]
        values = np.hstack([run.values[places] for run in runs])
        kinds, counts = _kinds(values)
        if len(kinds) * _ROWS_PER_KIND > len(values):
            strata.append(_Stratum(name, len(values), values, None))
        else:
            strata.append(_Stratum(name, len(values), kinds, counts / len(values)))
    return strata


def _kinds(values: Values) -> tuple[Values, NDArray[np.intp]]:
    """Return the distinct rows of an array, in order of their first occurrence, with their counts."""
    codes = np.zeros(len(values), dtype=np.intp)
    for column in values.T:
        distinct, inverse = np.unique(column, return_inverse=True)
        if len(distinct) * _ROWS_PER_KIND > len(values):
            return values, np.ones(len(values), dtype=np.intp)
        codes = np.unique(codes * len(distinct) + inverse, return_inverse=True)[1]
    _, places, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(places)
    return values[places[order]], counts[order]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval: Wilson's for a proportion, otherwise bootstrap percentiles."""

    value: float
    low: float
    high: float
    n: int | None = None
    """Number of units behind the value; None if it is not known, as for rates of a published summary.

    In a comparison of summaries it is the smaller of the two numbers.
    """


@dataclass(frozen=True, slots=True)
class Score:
    """Numbers of a run under one protocol."""

    card: ProtocolCard
    estimates: Mapping[str, Estimate]
    """By name, the headline first."""
    units: Units

    @property
    def headline(self) -> str:
        """Name of the first estimate."""
        return next(iter(self.estimates))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs under one protocol, over the units that both contain; over all units if they are unpaired."""

    card: ProtocolCard
    differences: Mapping[str, Estimate]
    """Second minus first, with a bootstrap interval: the same draw for both runs if they are paired."""
    first: Mapping[str, float]
    second: Mapping[str, float]
    paired: bool
    """False if one of the runs was rebuilt from a summary, so that its rows cannot be found in the other."""
    common: int
    """Units in both runs; 0 if they are unpaired."""
    only_first: tuple[str, ...]
    """Ids of the units that only the first run contains; empty if they are unpaired."""
    only_second: tuple[str, ...]
    gained: int | None
    """Units that only the second run got right; None if units are not simply right or wrong."""
    lost: int | None
    """Units that only the first run got right; None like `gained`."""
    p_value: float | None
    """McNemar's exact two-sided test of gained against lost (McNemar 1947); None like `gained`."""

    @property
    def left_out(self) -> int:
        """Number of units that only one of the runs contains."""
        return len(self.only_first) + len(self.only_second)


def score(
    protocol: ScoringProtocol, rows: Iterable[JudgedRow], *, seed: int = 0, resamples: int = RESAMPLES
) -> Score:
    """Score judged rows under a protocol.

    `resamples` is the number of bootstrap draws, seeded by `seed`. Raises Unscorable if the protocol cannot
    score these rows.
    """
    units = protocol.units(rows)
    figures = protocol.figures(units)
    floats = [name for name, figure in figures.items() if not isinstance(figure, Proportion)]
    draws = resamples if floats else 0
    drawn = _bootstrap(protocol, [units], floats, seed, draws)[0]
    values, sizes = _values(figures), _sizes(figures, units)
    estimates = {
        name: Estimate(figure.rate, *figure.interval, n=figure.n)
        if isinstance(figure, Proportion)
        else _of_draws(values[name], drawn[name], sizes[name])
        for name, figure in figures.items()
    }
    return Score(protocol.card, estimates, units)


def compare(
    protocol: ScoringProtocol, first: Units, second: Units, *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare the units of two runs over the same rows, paired by id.

    Runs that were rebuilt from summaries have no pairs: they are resampled independently, and all of their
    units count. Raises Unscorable if paired runs have no row in common, or one that belongs to another
    section in the second run, and ValueError without scipy (extra `eval`) if rows are right or wrong.
    """
    paired = first.paired and second.paired
    one, other, only_first, only_second = _paired(first, second) if paired else (first, second, (), ())
    figures = [protocol.figures(units) for units in (one, other)]
    values = [_values(found) for found in figures]
    sizes = [_sizes(found, units) for found, units in zip(figures, (one, other), strict=True)]
    names = [name for name in figures[0] if name in figures[1]]
    if paired:
        drawn = _bootstrap(protocol, [one, other], names, seed, resamples)
    else:
        drawn = [
            _bootstrap(protocol, [units], names, stream, resamples)[0]
            for units, stream in zip((one, other), np.random.SeedSequence(seed).spawn(2), strict=True)
        ]
    tested = paired and protocol.card.intervals
    gained, lost = _discordant(one, other) if tested else (None, None)
    return Comparison(
        card=protocol.card,
        differences={
            name: _of_draws(
                values[1][name] - values[0][name],
                drawn[1][name] - drawn[0][name],
                _smaller(sizes[0][name], sizes[1][name]),
            )
            for name in names
        },
        first=values[0],
        second=values[1],
        paired=paired,
        common=len(one.ids) if paired else 0,
        only_first=only_first,
        only_second=only_second,
        gained=gained,
        lost=lost,
        p_value=None if gained is None or lost is None else mcnemar(gained, lost),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test for these discordant pairs (McNemar 1947).

    Raises ValueError, in one line, without scipy.
    """
    if not gained + lost:
        return 1.0
    try:
        from scipy.stats import binomtest
    except ModuleNotFoundError:
        raise ValueError("McNemar's test needs the extra `eval`: pip install 'tirjudge[eval]'") from None
    return float(binomtest(gained, gained + lost).pvalue)


def _bootstrap(
    protocol: ScoringProtocol,
    runs: list[Units],
    names: list[str],
    seed: int | np.random.SeedSequence,
    resamples: int,
) -> list[dict[str, NDArray[np.float64]]]:
    """Compute figures of resamples, with the same draw for every run; none if units are not a random draw.

    The units of the runs must be aligned.
    """
    found: list[dict[str, list[float]]] = [{name: [] for name in names} for _ in runs]
    if not protocol.card.intervals:
        resamples = 0
    for sample in bootstrap_samples(runs, resamples, seed) if resamples else ():
        for units, kept in zip(sample, found, strict=True):
            figures = _values(protocol.figures(units))
            for name in names:
                # A resample may lack a figure, such as the kappa of a class that was not drawn.
                kept[name].append(figures.get(name, math.nan))
    return [{name: np.array(values) for name, values in kept.items()} for kept in found]


def _paired(first: Units, second: Units) -> tuple[Units, Units, tuple[str, ...], tuple[str, ...]]:
    """Return the units that both runs contain, in the order of the first, and the ids in only one run.

    Raises Unscorable if there are none, or if one belongs to different sections.
    """
    if first.ids == second.ids:
        _check_sections(first, second)
        return first, second, (), ()
    known = {id: place for place, id in enumerate(second.ids)}
    places = np.array([known.get(id, -1) for id in first.ids], dtype=np.intp)
    common = places >= 0
    if not common.any():
        raise Unscorable("the runs have no row in common")
    missed = np.ones(len(second.ids), dtype=bool)
    missed[places[common]] = False
    one, other = _taken(first, np.flatnonzero(common)), _taken(second, places[common])
    _check_sections(one, other)
    return one, other, _named(first, ~common), _named(second, missed)


def _named(units: Units, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(units.ids[int(place)] for place in np.flatnonzero(chosen))


def _taken(units: Units, taken: NDArray[np.intp]) -> Units:
    """Return the units at these places, in this order."""
    numbers = np.full(len(units.ids), -1, dtype=np.intp)
    numbers[taken] = np.arange(len(taken))
    sections = {name: numbers[positions] for name, positions in units.sections.items()}
    sections = {name: np.sort(positions[positions >= 0]) for name, positions in sections.items()}
    return Units(
        ids=tuple(units.ids[int(place)] for place in taken),
        sections={name: positions for name, positions in sections.items() if len(positions)},
        values=units.values[taken],
    )


def _check_sections(one: Units, other: Units) -> None:
    """Raise Unscorable if a unit of two aligned runs belongs to different sections."""
    names = sorted({*one.sections, *other.sections})
    found = np.full((2, len(one.ids)), -1, dtype=np.intp)
    for run, row in zip((one, other), found, strict=True):
        for number, name in enumerate(names):
            row[run.sections.get(name, [])] = number
    different = np.flatnonzero(found[0] != found[1])
    if len(different):
        place = int(different[0])
        before, after = (names[row[place]] for row in found)
        raise Unscorable(
            f"row {one.ids[place]!r} belongs to {before!r} in the first run and to {after!r} in the second"
        )


def _discordant(one: Units, other: Units) -> tuple[int | None, int | None]:
    """Return (gained, lost), or (None, None) if some credit is neither 0 nor 1."""
    before, after = one.values[:, 0], other.values[:, 0]
    if not (np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all()):
        return None, None
    return int((after > before).sum()), int((after < before).sum())


def _values(figures: Figures) -> dict[str, float]:
    return {
        name: figure.rate
        if isinstance(figure, Proportion)
        else figure.value
        if isinstance(figure, Statistic)
        else figure
        for name, figure in figures.items()
    }


def _sizes(figures: Figures, units: Units) -> dict[str, int | None]:
    """Return the n of every figure."""
    return {
        name: figure.n if isinstance(figure, Proportion | Statistic) else len(units.ids)
        for name, figure in figures.items()
    }


def _smaller(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _of_draws(value: float, draws: NDArray[np.float64], n: int | None) -> Estimate:
    return Estimate(value, *central_interval(draws), n)
