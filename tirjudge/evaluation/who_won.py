"""Who won: the sources of the responses of a result file, with their wins, the places and the lengths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tirjudge.console_text import counted
from tirjudge.evaluation.judged_rows import JudgedRow, Unscorable
from tirjudge.evaluation.protocols.win_rate import (
    CHANCE,
    FIRST_SHOWN,
    LONGER,
    LOSER_LENGTH,
    ONE_PLACE,
    OWN_FAMILY,
    STRENGTH_OF,
    VOTES,
    WIN_RATE,
    WIN_RATE_OF,
    WINNER_LENGTH,
    in_domain,
)
from tirjudge.evaluation.scoring import Estimate, ProtocolScore, cluster_count, score
from tirjudge.judging.tally import EvidenceTally
from tirjudge.statistics.clusters import in_clusters
from tirjudge.statistics.printed import bounds_record, estimated

_HALF = 0.5
_MOST_DOMAINS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """The rows of one source, such as a model."""

    name: str
    wins: int
    losses: int
    ties: int
    rate: Estimate
    """Share of its rows that the source won, where a tie of k is worth 1 / k."""
    strength: Estimate | None
    """Expected share of wins against the others, by Bradley and Terry; None for two sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoWon:
    """The sources, the one that won most first, and what else may explain the wins."""

    sources: tuple[SourceResult, ...]
    first_shown: Estimate | None
    """Share of verdicts for the response shown first; None if every source was always at the same place."""
    chance: float
    """The same share by chance: 1 / k of k responses; nan without verdicts."""
    one_place: bool
    own_family: Estimate | None
    """Wins that the judge gives to its own family minus those of the labels, a share; None without both."""
    longer: Estimate | None
    """Share of decided rows that the longest response won; None without texts."""
    winner_length: float
    """Mean characters of the responses that won; nan without texts."""
    loser_length: float
    clusters: int | None
    """Number of clusters of rows; None if rows are independent."""
    domains: Mapping[str, Mapping[str, Estimate]]
    """For each domain the win rate of each of its sources; empty if all rows have the same."""

    @classmethod
    def of(cls, scored: ProtocolScore) -> WhoWon | None:
        """Return who won by a score under the protocol `win-rate`; None for another score."""
        names, found = scored.units.names, scored.estimates
        if not names or scored.card.name != WIN_RATE.card.name:
            return None
        credits, measure = scored.units.values[:, : len(names)], scored.units.measure
        votes, chances = measure(VOTES), measure(CHANCE)
        decided = ~np.isnan(measure(WINNER_LENGTH))
        place = {name: number for number, name in enumerate(names)}
        # Figures are in the order of the win rates.
        order = [one.removeprefix(WIN_RATE_OF) for one in found if one.startswith(WIN_RATE_OF)]
        return cls(
            sources=tuple(
                SourceResult(
                    name=name,
                    wins=int((credits[:, place[name]] == 1).sum()),
                    losses=int((credits[:, place[name]] == 0).sum()),
                    ties=int(((credits[:, place[name]] > 0) & (credits[:, place[name]] < 1)).sum()),
                    rate=found[f"{WIN_RATE_OF}{name}"],
                    strength=found.get(f"{STRENGTH_OF}{name}"),
                )
                for name in order
            ),
            first_shown=found.get(FIRST_SHOWN),
            chance=float(chances.sum() / votes.sum()) if votes.any() else math.nan,
            one_place=scored.units.counts[ONE_PLACE] > 0,
            own_family=found.get(OWN_FAMILY),
            longer=found.get(LONGER),
            winner_length=_mean(measure(WINNER_LENGTH)[decided]),
            loser_length=_mean(measure(LOSER_LENGTH)[decided]),
            clusters=cluster_count(scored.units),
            domains={
                domain or "no domain": {
                    name: found[figure] for name in order if (figure := in_domain(name, domain)) in found
                }
                for domain in scored.units.sections
                if len(scored.units.sections) > 1
            },
        )

    def record(self) -> dict[str, Any]:
        """Return who won as JSON values, whose shares are from 0 to 1."""
        return {
            "sources": [
                {
                    "name": one.name,
                    "wins": one.wins,
                    "losses": one.losses,
                    "ties": one.ties,
                    "win_rate": _record(one.rate),
                    "bradley_terry": _record(one.strength),
                }
                for one in self.sources
            ],
            "first_shown_wins": _record(self.first_shown),
            "first_shown_by_chance": None if math.isnan(self.chance) else self.chance,
            "preferred_place": self.preferred_place.removeprefix(": "),
            "own_family": _record(self.own_family),
            "longer_wins": _record(self.longer),
            "winner_characters": None if math.isnan(self.winner_length) else self.winner_length,
            "loser_characters": None if math.isnan(self.loser_length) else self.loser_length,
            "clusters": self.clusters,
            "domains": {
                domain: {name: _record(one) for name, one in rates.items()}
                for domain, rates in self.domains.items()
            },
        }

    @property
    def winner(self) -> str:
        """The decision between two sources in words; empty for more. The names of sources are untrusted."""
        found = self._decision
        if found is None:
            return ""
        name, reason = found
        return f"{name or ('unknown' if self._unknown else 'none')}: {reason}"

    @property
    def sentence(self) -> str:
        """Who won as a sentence, also among more than two sources. The names of sources are untrusted."""
        found, best = self._decision, self.sources[0]
        if found is None:
            return f"{best.name} won most of {len(self.sources)} sources"
        name, reason = found
        return f"{f'{name} wins' if name else 'no winner'}: {reason}"

    @property
    def _unknown(self) -> bool:
        return math.isnan(self.sources[0].rate.low)

    @property
    def _decision(self) -> tuple[str, str] | None:
        """The source that won, if any, and the reason; None for more than two sources."""
        if len(self.sources) != 2:
            return None
        best = self.sources[0]
        if self._unknown:
            return "", f"no interval from {counted(best.rate.n or 0, 'row')}"
        if best.rate.low > _HALF:
            return best.name, "its interval lies above 50 %"
        return "", f"the interval of {best.name} contains 50 %"

    def wins(self) -> Iterator[str]:
        """Yield the wins of each source; the names of sources are untrusted."""
        for one in self.sources:
            count = f"{one.wins} won, {one.losses} lost, {one.ties} tied"
            yield f"{one.name} {one.rate.printed()} of {counted(one.rate.n or 0, 'row')} ({count})"

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield headings with what they say; the names of sources are untrusted."""
        for number, line in enumerate(self.wins()):
            yield "" if number else "who won", line
        found = [(one.name, one.strength) for one in self.sources if one.strength is not None]
        ranked = [pair for pair in found if not math.isnan(pair[1].value)]
        for number, (name, strength) in enumerate(sorted(ranked, key=lambda pair: -pair[1].value), 1):
            line = f"{number}. {name} {strength.printed()} (Bradley-Terry: wins against the others)"
            yield "ranking" if number == 1 else "", line
        if unranked := [pair for pair in found if pair not in ranked]:
            names = f" for {', '.join(name for name, _ in unranked)}" if ranked else ""
            yield "" if ranked else "ranking", f"none{names}: {unranked[0][1].no_interval}"
        for number, (domain, rates) in enumerate(list(self.domains.items())[:_MOST_DOMAINS]):
            line = f"{domain}: {', '.join(f'{name} {one.printed()}' for name, one in rates.items())}"
            yield "" if number else "domains", line
        if (more := len(self.domains) - _MOST_DOMAINS) > 0:
            yield "", f"{more} further domains, which --json prints"
        yield from self._causes()
        clusters = in_clusters(self.clusters)
        line = f"win-rate: each of k tied responses has 1/k of a win{clusters and f', rows{clusters}'}"
        yield "protocol", line

    @property
    def preferred_place(self) -> str:
        """The end of a sentence about a place that the judge prefers; empty if none is known."""
        found = self.first_shown
        if found is None or math.isnan(found.low) or found.low <= self.chance <= found.high:
            return ""
        others = "the response shown second" if self.chance == 0.5 else "responses that are not shown first"
        place = "the response shown first" if found.low > self.chance else others
        return f": the judge prefers {place} (--order both shows each row in both orders)"

    def _causes(self) -> Iterator[tuple[str, str]]:
        if self.first_shown is not None:
            yield (
                "position",
                (
                    f"{self.first_shown.printed()} of the verdicts name the response shown first, "
                    f"by chance {self.chance:.0%}{self.preferred_place}"
                ),
            )
        elif self.one_place:
            yield "position", "unknown: every source was always shown at the same place (--order both)"
        if self.own_family is not None:
            own = self.own_family
            points = estimated(100 * own.value, 100 * own.low, 100 * own.high, "+.1f")
            about = f"points of wins that labels do not give, n = {own.n} rows"
            yield "own", f"the judge gives models whose names begin like its own {points} {about}"
        if self.longer is not None:
            means = f"{self.winner_length:.0f} characters on average, losers {self.loser_length:.0f}"
            won = f"the longer response wins {self.longer.printed()} of {self.longer.n} rows"
            yield "length", f"{won}; winners have {means}"


def who_won(rows: Iterable[JudgedRow]) -> WhoWon | None:
    """Return who won; None if the rows name no sources, or none has a verdict."""
    try:
        return WhoWon.of(score(WIN_RATE, rows))
    except Unscorable:
        return None


def who_won_decided(rows: Iterable[JudgedRow], evidence: EvidenceTally) -> WhoWon | None:
    """Return who won among the rows that programs decided, copied ones aside; None if all are or none is."""
    if not evidence.decided or evidence.decided == evidence.known + evidence.unknown:
        return None
    apart = evidence.apart
    return who_won(row for row in rows if row.decided and row.id not in apart)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _record(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else {**bounds_record(found.value, found.low, found.high), "n": found.n}
