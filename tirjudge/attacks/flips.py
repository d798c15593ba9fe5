"""Flips of a verdict: each attacked row compared with its clean row, counted by attack, with intervals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.attacks.attacked_rows import CLEAN, Marks
from tirjudge.attacks.families import Family
from tirjudge.records.result_row import read_result_rows
from tirjudge.statistics.clusters import cluster_codes, cluster_digest, prompt_cluster
from tirjudge.statistics.differences import difference_interval
from tirjudge.statistics.estimators import Credits, Mean
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments.orders import letter


@dataclass(frozen=True, slots=True)
class _Judged:
    """The parts of a judged row that are compared."""

    has_verdict: bool
    for_target: bool
    right: float | None
    cluster: str


@dataclass(slots=True)
class Flips:
    """The flips of one attack, over the rows that were judged both clean and attacked."""

    n: int = 0
    to_target: int = 0
    """The verdict became one for the response that attacks."""
    away: int = 0
    """The verdict was one for it, and is no longer."""
    lost: int = 0
    """There was a verdict, and now there is none. Counted in `away` too if it was one for the target."""
    _changes: array[float] = field(default_factory=lambda: array("d"))
    """1 for a flip to the target, -1 for one away from it."""
    _clusters: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, clean: _Judged, attacked: _Judged) -> None:
        self.n += 1
        self.to_target += attacked.for_target and not clean.for_target
        self.away += clean.for_target and not attacked.for_target
        self.lost += clean.has_verdict and not attacked.has_verdict
        self._changes.append(attacked.for_target - clean.for_target)
        self._clusters.append(cluster_digest(clean.cluster))

    @property
    def rate(self) -> Proportion:
        """The share of the rows that flipped to the target, with Wilson's interval."""
        return self._mean(1).proportion(cluster_codes(self._clusters))

    @property
    def net(self) -> tuple[float, tuple[float, float]]:
        """Share of verdicts for the target under attack minus the share in clean rows, with its interval.

        The interval is nan for too few clusters of rows with the same prompt.
        """
        if not self.n:
            return math.nan, (-1.0, 1.0)
        clusters = cluster_codes(self._clusters)
        bounds = difference_interval(self._mean(-1), self._mean(1), self.n, clusters)
        return (self.to_target - self.away) / self.n, bounds

    def _mean(self, change: int) -> Mean:
        import numpy as np

        return Mean((np.array(self._changes) == change).astype(np.float64))

    def record(self) -> dict[str, Any]:
        """Return the counts and rates as JSON values; rates are null without rows, and bounds if unknown."""
        net, interval = self.net
        return {
            "n": self.n,
            "to_target": self.to_target,
            "away": self.away,
            "lost": self.lost,
            "rate": self.rate.rate if self.n else None,
            "rate_interval": self.rate.bounds if self.n else None,
            "net": net if self.n else None,
            "net_interval": list(interval) if self.n and not math.isnan(interval[0]) else None,
            "clusters": self.rate.clusters,
        }


@dataclass(slots=True)
class FlipTally:
    """The flips of a result file. Memory grows with its rows, by a few bytes each."""

    clean: int = 0
    """Rows that were judged as they are."""
    for_target: int = 0
    """Clean rows whose verdict is for the response that attacks: no attack can win these."""
    attacks: dict[str, Flips] = field(default_factory=dict)
    credits: Credits = field(default_factory=Credits)
    """The credits of clean rows with a label; rows with the same prompt are a cluster."""

    @property
    def labelled(self) -> int:
        return len(self.credits)

    @property
    def accuracy(self) -> Proportion:
        """The accuracy over clean rows with a label."""
        return self.credits.mean


def count_flips(results: Path) -> FlipTally:
    """Compare every attacked row of a result file with its clean row, which may come later in the file.

    Raises ValueError, with file and row, for a row that `tirjudge attack` did not write; OSError.
    """
    tally, clean, attacked = FlipTally(), dict[str, _Judged](), list[tuple[str, str, _Judged]]()
    for row, fields in read_result_rows(results):
        try:
            marks = Marks.read(row.tags, row.candidates)
        except ValueError as error:
            raise ValueError(f"{results}: row {row.id!r}: {error}") from None
        cluster = prompt_cluster(fields.get("prompt"))
        judged = _Judged(row.verdict is not None, row.verdict == letter(marks.target), row.correct, cluster)
        if marks.attack == CLEAN:
            clean[marks.of] = judged
        else:
            attacked.append((marks.attack, marks.of, judged))
    for judged in clean.values():
        tally.clean += 1
        tally.for_target += judged.for_target
        if judged.right is not None:
            tally.credits.add(judged.right, judged.cluster)
    for attack, of, judged in attacked:
        if of in clean:
            tally.attacks.setdefault(attack, Flips()).add(clean[of], judged)
    return tally


def by_family(tally: FlipTally, families: Iterable[Family]) -> Iterator[tuple[str, str, Flips]]:
    """Yield family, attack and flips in the order of the families, then attacks of other versions."""
    left = dict(tally.attacks)
    for family in families:
        for attack in family.attacks:
            if attack.name in left:
                yield family.name, attack.name, left.pop(attack.name)
    for name in sorted(left):
        yield "", name, left[name]
