"""Units of a protocol, scores of a run with their intervals, and comparisons of two runs."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import (
    Figure,
    Figures,
    Ids,
    JudgedRow,
    ProtocolCard,
    ScoringProtocol,
    SummaryId,
    Units,
    Unscorable,
    Vote,
)
from tirjudge.evaluation.significance import clustered_mcnemar, holm, mcnemar
from tirjudge.records.verdicts import verdict_credit
from tirjudge.statistics.clusters import cluster_codes, cluster_digest
from tirjudge.statistics.differences import (
    detectable_difference,
    difference_interval,
    fault_of,
    unpaired_interval,
)
from tirjudge.statistics.estimators import Estimator, Mean, Statistic
from tirjudge.statistics.printed import SHARE, estimated
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments.types import derive_seed

_DRAW = "evaluation order"
"""Part of the seed; another text would change which order of a row counts, and so published replays."""


class UnitsBuilder:
    """Collects the units of a protocol, and counts the rows that its rules applied to.

    A protocol may name the `measures` of a unit, which `Units.measure` then finds.
    """

    def __init__(self, *measures: str) -> None:
        self._measures = measures
        self.counts: Counter[str] = Counter()
        self._ids = Ids()
        # Arrays of machine numbers: a list of tuples takes ten times as much memory for a million rows.
        self._sections: dict[str, array[int]] = {}
        self._values = array("d")
        self._clusters = array("Q")
        self._paired = True

    def add_row(self, row: JudgedRow, *values: float) -> None:
        """Add a row as a unit of its own, in the section of its domain and in its cluster."""
        self.add(row.id, row.domain, *values, cluster=row.cluster)

    def add(self, id: str, section: str, *values: float, cluster: str = "") -> None:
        """Add a unit with its measures."""
        place = len(self._ids)
        self._ids.append(id)
        if section not in self._sections:
            self._sections[section] = array("q")
        self._sections[section].append(place)
        self._values.extend(values)
        if len(self._values) != len(values) * (place + 1):
            raise ValueError(f"unit {str(id)!r} has {len(values)} measures, other units have more or fewer")
        # A run without clusters needs no array; the first cluster makes up for the rows before it.
        if cluster or self._clusters:
            self._clusters.extend([0] * (place - len(self._clusters)))
            self._clusters.append(cluster_digest(cluster))
        self._paired = self._paired and not isinstance(id, SummaryId)

    def build(self) -> Units:
        """Return the units. Raises Unscorable if there are none, or if two have the same id."""
        if not self._ids:
            reasons = ", ".join(f"{name} ({count})" for name, count in self.counts.items())
            raise Unscorable(f"no row can be scored{f': {reasons}' if reasons else ''}")
        if (repeated := self._ids.repeated()) is not None:
            raise Unscorable(f"two rows have the id {repeated!r}")
        return Units(
            ids=self._ids,
            sections={
                name: np.frombuffer(self._sections[name], dtype=np.int64) for name in sorted(self._sections)
            },
            values=np.frombuffer(self._values).reshape(len(self._ids), -1),
            counts=self.counts,
            clusters=cluster_codes(self._clusters),
            measures=self._measures,
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
            if len(vote.best) != 1:
                self.counts["tie" if vote.best else "no verdict"] += 1


def section_figures(units: Units, credits: NDArray[np.float64]) -> dict[str, Mean]:
    """Return the mean of `credits`, one per unit, in each section."""
    return {
        name or "no domain": Mean(credits[places], places=places) for name, places in units.sections.items()
    }


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
    return 0.0 if vote.tie and not share_ties else verdict_credit(vote.best, label)


def _ordered(row: JudgedRow, order: tuple[int, ...], name: str) -> Vote:
    for vote in row.votes:
        if vote.order == order and vote.sample == 0:
            return vote
    if not all(vote.order for vote in row.sample()):
        raise Unscorable(f"the responses of row {row.id!r} were judged one by one, so there is no order")
    raise Unscorable(f"row {row.id!r} was not judged in {name}: judge it with --order both")


LEVEL = 0.05
"""The p value below which a test excludes that there is no difference."""
RESAMPLES = 1000
"""Samples behind an interval of a number that is no estimator."""
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

    The units of the runs must be aligned. Rows are drawn over the whole file, clusters as a whole: sections
    differ in size between samples. Ids of a sample are meaningless. Samples depend on the units but not on
    their order.
    """
    generator = np.random.default_rng(seed)
    first = runs[0]
    order = np.array(sorted(range(len(first.ids)), key=first.ids.__getitem__), dtype=np.intp)
    if first.clusters is not None:
        members = np.split(
            order[np.argsort(first.clusters[order], kind="stable")],
            np.cumsum(np.bincount(first.clusters))[:-1],
        )
    codes = np.zeros(len(order), dtype=np.intp)
    for number, places in enumerate(first.sections.values()):
        codes[places] = number
    for _ in range(resamples):
        if first.clusters is None:
            drawn = order[generator.integers(len(order), size=len(order))]
        else:
            chosen = generator.integers(len(members), size=len(members))
            drawn = np.concatenate([members[one] for one in chosen])
        sections = {name: np.flatnonzero(codes[drawn] == n) for n, name in enumerate(first.sections)}
        sections = {name: places for name, places in sections.items() if len(places)}
        yield [replace(run, values=run.values[drawn], sections=sections, clusters=None) for run in runs]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; nan for bounds that these rows do not give."""

    value: float
    low: float
    high: float
    n: int | None = None
    """Number of units behind the value; None if it is not known, as for rates of a published summary.

    In a comparison of summaries it is the smaller of the two numbers.
    """
    no_interval: str = ""
    """Why there is no interval; empty if there is one."""

    def printed(self, form: str = SHARE) -> str:
        """Return the number with its interval, see `estimated`."""
        return estimated(self.value, self.low, self.high, form)


@dataclass(frozen=True, slots=True)
class ProtocolScore:
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
    """Second minus first, with the interval of paired rows if the runs are paired."""
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
    """Units with a higher credit in the second run; None if units are not right, wrong or a shared tie."""
    lost: int | None
    """Units with a lower credit in the second run; None like `gained`."""
    p_value: float | None
    """Two-sided mid-p value of McNemar's test of gained against lost, or the test of clusters, which also
    takes shared ties; None like `gained`."""
    clusters: int | None = None
    """Number of clusters of common units, if some units belong together."""
    test: str = "McNemar, mid-p"
    """Name of the test behind the p value."""
    detectable: Mapping[str, float] = field(default_factory=dict)
    """The true difference that so many pairs would show with a power of 80 %; nan without an interval."""
    no_verdict: tuple[int, int] = (0, 0)
    """Number of missing verdicts in the first and in the second run, over all of their rows."""
    p_holm: float | None = None
    """The p value, corrected for the number of runs that are compared with the first (Holm 1979)."""

    @property
    def disagrees(self) -> bool:
        """True if exactly one of test and interval of the first number excludes a difference of zero."""
        found = next(iter(self.differences.values()))
        if self.p_value is None or math.isnan(found.low):
            return False
        return (found.low > 0 or found.high < 0) != (self.p_value < LEVEL)

    def is_loss(self, figure: str) -> bool:
        """Return True if the second run is lower by the interval, and by the test if there is one."""
        found, p_value = self.differences[figure], self.p_value if self.p_holm is None else self.p_holm
        return found.high < 0 and (p_value is None or p_value < LEVEL)

    @property
    def left_out(self) -> int:
        """Number of units that only one of the runs contains."""
        return len(self.only_first) + len(self.only_second)


def score(
    protocol: ScoringProtocol, rows: Iterable[JudgedRow], *, seed: int = 0, resamples: int = RESAMPLES
) -> ProtocolScore:
    """Score judged rows under a protocol.

    `resamples` is the number of bootstrap draws, seeded by `seed`, for numbers that are no estimators. Raises
    Unscorable if the protocol cannot score these rows.
    """
    units = protocol.units(rows)
    figures = protocol.figures(units)
    drawn = _bootstrap(protocol, [units], _undetermined(figures), seed, resamples)[0]
    size = len(units.ids)
    estimates = {}
    for name, figure in figures.items():
        value, n = _value(figure), _size(figure, units)
        fault = fault_of(figure, clusters=units.clusters)
        if not protocol.card.intervals or fault:
            bounds = math.nan, math.nan
        elif isinstance(figure, Proportion):
            bounds = figure.interval
        elif not isinstance(figure, Estimator):
            bounds = central_interval(drawn[name])
        else:
            bounds = figure.interval(size, units.clusters)
        estimates[name] = Estimate(value, *bounds, n=n, no_interval=fault)
    return ProtocolScore(protocol.card, estimates, units)


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
    if paired and one.clusters is None:
        # One of the files may lack the prompts, which say that rows belong together.
        one = replace(one, clusters=other.clusters)
    figures = [protocol.figures(units) for units in (one, other)]
    names = [name for name in figures[0] if name in figures[1]]
    # A number may be an estimator in one run alone, such as Kendall's tau of ratings with few levels.
    undetermined = {name for found in figures for name in _undetermined(found)}
    drawn_names = [name for name in names if name in undetermined]
    if paired:
        drawn = _bootstrap(protocol, [one, other], drawn_names, seed, resamples)
    else:
        drawn = [
            _bootstrap(protocol, [units], drawn_names, stream, resamples)[0]
            # Streams of one seed would draw the same places in both runs, which have no pairs.
            for units, stream in zip((one, other), np.random.SeedSequence(seed).spawn(2), strict=True)
        ]
    tested = paired and protocol.card.intervals and not one.names
    gained, lost = _discordant(one, other) if tested else (None, None)
    p_value, test = _tested(one, other, gained, lost)
    differences, detectable = {}, {}
    for name in names:
        before, after = figures[0][name], figures[1][name]
        value = _value(after) - _value(before)
        n = _smaller(_size(before, one), _size(after, other))
        clusters = one.clusters, one.clusters if paired else other.clusters
        fault = fault_of(before, clusters=clusters[0]) or fault_of(after, clusters=clusters[1])
        if not protocol.card.intervals or fault:
            bounds = math.nan, math.nan
        elif name in drawn_names or not (isinstance(before, Estimator) and isinstance(after, Estimator)):
            bounds = central_interval(drawn[1][name] - drawn[0][name])
        elif paired:
            bounds = difference_interval(before, after, len(one.ids), one.clusters)
            detectable[name] = detectable_difference(before, after, len(one.ids), one.clusters)
        else:
            bounds = unpaired_interval(before, after, (len(one.ids), len(other.ids)), clusters)
        differences[name] = Estimate(value, *bounds, n=n, no_interval=fault)
    return Comparison(
        card=protocol.card,
        differences=differences,
        first={name: _value(figure) for name, figure in figures[0].items()},
        second={name: _value(figure) for name, figure in figures[1].items()},
        paired=paired,
        common=len(one.ids) if paired else 0,
        only_first=only_first,
        only_second=only_second,
        gained=gained,
        lost=lost,
        p_value=p_value,
        clusters=cluster_count(one) if paired else None,
        test=test,
        detectable=detectable,
        no_verdict=(first.counts["no verdict"], second.counts["no verdict"]),
    )


def with_holm(runs: Sequence[Sequence[Comparison]]) -> list[list[Comparison]]:
    """Return comparisons of a first run with several others, a list for each of the others.

    Under each protocol, p values are corrected for the number of the other runs.
    """
    tested: dict[str, list[float]] = {}
    for one in chain.from_iterable(runs):
        if one.p_value is not None:
            tested.setdefault(one.card.name, []).append(one.p_value)
    corrected = {name: iter(holm(found)) for name, found in tested.items() if len(found) > 1}

    def with_correction(one: Comparison) -> Comparison:
        left = corrected.get(one.card.name)
        return one if left is None or one.p_value is None else replace(one, p_holm=next(left))

    return [list(map(with_correction, compared)) for compared in runs]


def cluster_count(units: Units) -> int | None:
    """Return the number of clusters; None if no two units belong together."""
    return None if units.clusters is None else int(units.clusters.max()) + 1


def _tested(one: Units, other: Units, gained: int | None, lost: int | None) -> tuple[float | None, str]:
    """Return the p value of gained against lost, and the name of its test."""
    changes = other.values[:, 0] - one.values[:, 0] if gained is not None else np.zeros(0)
    if gained is None or lost is None:
        return None, ""
    if one.clusters is not None:
        return clustered_mcnemar(changes, one.clusters), "clustered McNemar"
    if np.isin(changes, (-1, 0, 1)).all():
        return mcnemar(gained, lost), "McNemar, mid-p"
    # A change of a tie is worth less than one of a verdict: each row is a cluster of its own.
    return clustered_mcnemar(changes, np.arange(len(changes))), "McNemar with shared ties"


def _undetermined(figures: Figures) -> list[str]:
    """Return the names of the numbers that are bootstrapped."""
    return [
        name for name, figure in figures.items() if not isinstance(figure, Estimator) and not fault_of(figure)
    ]


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
    if not protocol.card.intervals or not names:
        resamples = 0
    for sample in bootstrap_samples(runs, resamples, seed) if resamples else ():
        for units, kept in zip(sample, found, strict=True):
            figures = protocol.figures(units)
            for name in names:
                # A resample may lack a figure, such as that of a section that was not drawn.
                kept[name].append(_value(figures.get(name, math.nan)))
    return [{name: np.array(values) for name, values in kept.items()} for kept in found]


def _paired(first: Units, second: Units) -> tuple[Units, Units, tuple[str, ...], tuple[str, ...]]:
    """Return the units that both runs contain, in the order of the first, and the ids in only one run.

    Raises Unscorable if there are none, or if one belongs to different sections.
    """
    if first.ids == second.ids:
        _check_sections(first, second)
        return first, second, (), ()
    places = first.ids.places_in(second.ids)
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
        ids=Ids(units.ids[int(place)] for place in taken),
        sections={name: positions for name, positions in sections.items() if len(positions)},
        values=units.values[taken],
        names=units.names,
        measures=units.measures,
        clusters=_some(units.clusters, taken),
    )


def _some(clusters: NDArray[np.intp] | None, taken: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return the clusters of some units, numbered from 0; None if every cluster has one of these units."""
    if clusters is None:
        return None
    codes = np.unique(clusters[taken], return_inverse=True)[1].astype(np.intp)
    return codes if codes.max() + 1 < len(codes) else None


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
    """Return (gained, lost), or (None, None) if some credit is neither 0 nor 1 / k, as of a tie of k."""
    before, after = one.values[:, 0], other.values[:, 0]
    credits = np.concatenate([before, after])
    sizes = 1 / credits[credits != 0]
    if not np.allclose(sizes, sizes.round()) or (sizes < 1).any():
        return None, None
    return int((after > before).sum()), int((after < before).sum())


def _value(figure: Figure) -> float:
    if isinstance(figure, Proportion):
        return figure.rate
    return figure.value if isinstance(figure, Statistic | Estimator) else figure


def _size(figure: Figure, units: Units) -> int | None:
    return figure.n if isinstance(figure, Proportion | Statistic | Estimator) else len(units.ids)


def _smaller(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)
