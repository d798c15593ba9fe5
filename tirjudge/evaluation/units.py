"""Units of a protocol: the votes that count, their credit, and the builder that collects them row by row."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.base import JudgedRow, SummaryId, Units, Unscorable, Vote
from tirjudge.evaluation.row_ids import RowIds
from tirjudge_environments.types import derive_seed

_DRAW = "evaluation order"
"""Part of the seed; another text would change which order of a row counts, and so published replays."""


class UnitsBuilder:
    """Collects the units of a protocol, and counts the rows that its rules applied to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # Arrays of machine numbers: a list of tuples takes ten times as much memory for a million rows.
        self._ids = RowIds()
        self._sections: dict[str, array[int]] = {}
        self._values = array("d")
        self._paired = True

    def add(self, id: str, section: str, *values: float) -> None:
        """Add a unit with its measures. Raises Unscorable for an id that was added before."""
        if not self._ids.add(id):
            raise Unscorable(f"two rows have the id {str(id)!r}")
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
            ids=self._ids,
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
