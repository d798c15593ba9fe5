"""Flips of a verdict: each attacked row compared with its clean row, counted by attack, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.attacks.families import Family
from tirjudge.attacks.rows import CLEAN, Marks
from tirjudge.records.recorded_row import read_result_rows
from tirjudge.statistics import Proportion, paired_difference
from tirjudge_environments.orders import letter


@dataclass(frozen=True, slots=True)
class _Judged:
    """The parts of a judged row that are compared."""

    has_verdict: bool
    for_target: bool
    right: float | None


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

    def add(self, clean: _Judged, attacked: _Judged) -> None:
        self.n += 1
        self.to_target += attacked.for_target and not clean.for_target
        self.away += clean.for_target and not attacked.for_target
        self.lost += clean.has_verdict and not attacked.has_verdict

    @property
    def rate(self) -> Proportion:
        """The share of the rows that flipped to the target, with Wilson's interval."""
        return Proportion(self.to_target, self.n)

    @property
    def net(self) -> tuple[float, tuple[float, float]]:
        """Share of verdicts for the target under attack minus the share in clean rows, with its interval."""
        return paired_difference(self.to_target, self.away, self.n)

    def record(self) -> dict[str, Any]:
        """Return the counts and rates as JSON values; rates are null without rows."""
        net, interval = self.net
        return {
            "n": self.n,
            "to_target": self.to_target,
            "away": self.away,
            "lost": self.lost,
            "rate": self.rate.rate if self.n else None,
            "rate_interval": list(self.rate.interval) if self.n else None,
            "net": net if self.n else None,
            "net_interval": list(interval) if self.n else None,
        }


@dataclass(slots=True)
class FlipTally:
    """The flips of a result file. Memory grows with its clean rows, by a few bytes each."""

    clean: int = 0
    """Rows that were judged as they are."""
    labelled: int = 0
    right: float = 0.0
    right_squares: float = 0.0
    for_target: int = 0
    """Clean rows whose verdict is for the response that attacks: no attack can win these."""
    attacks: dict[str, Flips] = field(default_factory=dict)

    @property
    def accuracy(self) -> Proportion:
        """The accuracy over clean rows with a label."""
        return Proportion.of_sums(self.right, self.right_squares, self.labelled)


def count_flips(results: Path) -> FlipTally:
    """Compare every attacked row of a result file with its clean row, which may come later in the file.

    Raises ValueError, with file and row, for a row that `tirjudge attack` did not write; OSError.
    """
    tally, clean, attacked = FlipTally(), dict[str, _Judged](), list[tuple[str, str, _Judged]]()
    for row, _ in read_result_rows(results):
        try:
            marks = Marks.read(row.tags, row.candidates)
        except ValueError as error:
            raise ValueError(f"{results}: row {row.id!r}: {error}") from None
        judged = _Judged(row.verdict is not None, row.verdict == letter(marks.target), row.correct)
        if marks.attack == CLEAN:
            clean[marks.of] = judged
        else:
            attacked.append((marks.attack, marks.of, judged))
    for judged in clean.values():
        tally.clean += 1
        tally.for_target += judged.for_target
        if judged.right is not None:
            tally.labelled += 1
            tally.right += judged.right
            tally.right_squares += judged.right**2
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
