"""Who wins: the sources of the responses of our own result files, and alpaca_eval's preferences."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.judged_rows import (
    MODEL,
    Figures,
    Ids,
    JudgedRow,
    ProtocolCard,
    Units,
    Unscorable,
    decision,
)
from tirjudge.evaluation.scoring import UnitsBuilder, section_figures
from tirjudge.selection.strengths import strengths
from tirjudge.statistics.estimators import Fitted, Mean, Statistic

Values = NDArray[np.float64]

WIN_RATE_OF, STRENGTH_OF = "win rate of ", "Bradley-Terry "
"""Beginnings of figures' names, before that of a source."""
FIRST_SHOWN = "first shown wins"
LONGER = "longer wins"
LENGTH_RATIO = "length of winners to losers"
OWN_FAMILY = "wins of the judge's own family, judge minus label"
_MOST_CREDITS = 50_000_000
"""Rows times sources, of which each has 8 bytes."""
ONE_PLACE = "position unknown: every source always at the same place"
"""Counts rows that say nothing about the position, because each source was always shown at the same place."""


class WinRate:
    """Who wins: mean preferences of alpaca_eval, or the sources of the responses in our own result files.

    Units of alpaca_eval are instructions if a run has one model, so that runs of two models can be paired;
    otherwise they are instructions with their models, and each model has a win rate before that of all.
    """

    card = ProtocolCard(
        name="win-rate",
        about="share of its rows that a source wins, or alpaca_eval's mean preference for the model",
        ties="a tie of k is worth 1/k: 0.5 for a pair",
        failures="leave the row out",
        source="alpaca_eval, metrics/winrate.py",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        arriving = iter(rows)
        first = next(arriving, None)
        rows = arriving if first is None else chain([first], arriving)
        return _sourced(rows) if first is not None and first.sources else self._preferred(rows)

    def _preferred(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        models: list[str] = []
        for row in rows:
            if row.preference is None:
                raise Unscorable(
                    f"row {row.id!r} names no sources of its responses (judge it with --column "
                    "responses=COLUMN,COLUMN), and has no preference of alpaca_eval"
                )
            if row.preference.value is None:
                builder.counts["left out: no preference"] += 1
                continue
            win = row.preference.value - 1
            if win == 0.5:
                builder.counts["tie"] += 1
            model = row.tag(MODEL) or ""
            if model not in models:
                models.append(model)
            discrete = 1.0 if win > 0.5 else 0.5 * (win == 0.5)
            id = row.id if model == models[0] else _unit(row.id, model)
            builder.add(id, model, win, discrete, cluster=row.cluster)
        units = builder.build()
        if len(models) == 1:
            return replace(units, sections={"": np.arange(len(units.ids))})
        first = set(units.sections[models[0]].tolist())
        ids = Ids(_unit(id, models[0]) if place in first else id for place, id in enumerate(units.ids))
        return replace(units, ids=ids)

    def figures(self, units: Units) -> Figures:
        if units.names:
            return _source_figures(units)
        win, discrete = units.values.T
        error = float(win.std(ddof=1)) / len(win) ** 0.5 if len(win) > 1 else 0.0
        models = {
            f"win rate of {model}": one
            for model, one in section_figures(units, win).items()
            if len(units.sections) > 1
        }
        return {
            **models,
            "win rate": Mean(win),
            "standard error": Statistic(error, len(win), "it is the error of the win rate"),
            "discrete win rate": Mean(discrete),
        }


def _unit(id: str, model: str) -> str:
    return f"{id} by {model}" if model else id


WIN_RATE = WinRate()


class ArenaHard:
    """Who wins by games: every verdict on a pair is a game, and one of much better counts as three games."""

    card = ProtocolCard(
        name="arena-hard",
        about="share of its games that a source wins; each order is a game, and `A>>B` counts as three",
        ties="are worth 0.5",
        failures="leave the row out, with its other order",
        source="arena-hard-auto, show_result.py",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        numbers: dict[str, int] = {}
        places, credits, unit = array("q"), array("d"), 0
        for row in rows:
            sources = row.sources
            best = votes[0].best if (votes := row.votes) and all(vote.best for vote in votes) else ()
            if (fault := _fault(row, sources, best)) or len(sources) != 2:
                builder.counts[f"left out: {fault or 'no pair'}"] += 1
                continue
            builder.counts["tie"] += sum(vote.tie for vote in votes)
            games = [_GAMES[vote.strength > 1 and not vote.tie] for vote in votes]
            shares = [(0 in vote.best) / len(vote.best) for vote in votes]
            first = sum(number * share for number, share in zip(games, shares, strict=True))
            for index, credit in enumerate((first, sum(games) - first)):
                places.extend((unit, numbers.setdefault(sources[index], len(numbers))))
                credits.append(credit)
            builder.add_row(row, sum(games))
            unit += 1
        units = builder.build()
        order, won = by_source(unit, numbers, places, credits)
        return replace(units, values=np.hstack([won, units.values]), names=tuple(order))

    def figures(self, units: Units) -> Figures:
        rates, sections = _rates(units, units.values[:, -1])
        return rates | sections


def _rates(units: Units, games: Values | None = None) -> tuple[dict[str, Mean], dict[str, Mean]]:
    """Return the win rate of each source, the best first, and those in each domain; a row is one game."""
    found, sections = {}, {}

    def rate(credits: Values, places: NDArray[np.intp]) -> Mean:
        return Mean(credits[places], None if games is None else games[places], places)

    for name, credits in zip(units.names, units.values.T, strict=False):
        known = ~np.isnan(credits)
        found[f"{WIN_RATE_OF}{name}"] = rate(credits, np.flatnonzero(known))
        for section, own in units.sections.items() if len(units.sections) > 1 else ():
            if len(places := own[known[own]]):
                sections[in_domain(name, section)] = rate(credits, places)
    return dict(sorted(found.items(), key=lambda pair: -pair[1].value)), sections


def in_domain(source: str, section: str) -> str:
    """Return the name of the figure for a source in a domain."""
    return f"{source}, {section or 'no domain'}"


ARENA_HARD = ArenaHard()
_GAMES = (1, 3)
"""Games that a verdict counts as: a tie or a better response, and a much better one."""


FIRST, VOTES, CHANCE = "for the first shown", "decided verdicts", "for the first shown by chance"
"""Decided verdicts of a row: for the response shown first, all, and how many would name it by chance."""
OWN, LONGEST = "own family", "longest wins"
"""What the judge adds to the wins of its own family, nan if that is not known, and 1 if the longest response
wins or 0, nan if there is none."""
WINNER_LENGTH, LOSER_LENGTH = "characters of the winner", "mean characters of others"
_MEASURES = (FIRST, VOTES, CHANCE, OWN, LONGEST, WINNER_LENGTH, LOSER_LENGTH)


def _sourced(rows: Iterable[JudgedRow]) -> Units:
    """Return a credit for each source, followed by the position and the lengths of winners and losers.

    Credits are 1 for the winner, 1 / k for a tie of k and nan for a source that the row does not have.
    `_MEASURES` follow.
    """
    builder = UnitsBuilder(*_MEASURES)
    numbers: dict[str, int] = {}
    places, credits = array("q"), array("d")
    """Unit and source of each credit, one after the other."""
    shown, unit = set[tuple[tuple[str, ...], tuple[int, ...]]](), 0
    for row in rows:
        best, sources = decision(row), row.sources
        if fault := _fault(row, sources, best):
            builder.counts[f"left out: {fault}"] += 1
            continue
        builder.counts["tie"] += len(best) > 1
        for index, source in enumerate(sources):
            places.extend((unit, numbers.setdefault(source, len(numbers))))
            credits.append((index in best) / len(best))
        decided = [vote for vote in row.votes if vote.order and vote.choice is not None]
        shown.update((sources, vote.order) for vote in decided)
        first = sum(vote.choice == vote.order[0] for vote in decided)
        chance = len(decided) / len(sources)
        builder.add_row(row, first, len(decided), chance, _own(row, sources, best), *_lengths(row, best))
        unit += 1
    units = builder.build()
    order, won = by_source(unit, numbers, places, credits)
    places_of = {(names[index], place) for names, order in shown for place, index in enumerate(order)}
    if len(places_of) == len({source for source, _ in places_of}):
        units.counts[ONE_PLACE] = int((units.measure(VOTES) > 0).sum())
        # Here the place of a response is its source, so the measures of places say nothing.
        known = [name not in (FIRST, VOTES, CHANCE) for name in _MEASURES]
        units = replace(units, values=units.values * known)
    return replace(units, values=np.hstack([won, units.values]), names=tuple(order))


def by_source(
    rows: int, numbers: dict[str, int], places: array[int], credits: array[float]
) -> tuple[list[str], Values]:
    """Return the sources in order, and the credit of each in each row; nan where a row lacks the source.

    `places` has row and number of the source of each credit. Raises Unscorable for too many sources.
    """
    if rows * len(numbers) > _MOST_CREDITS:
        raise Unscorable(f"{rows} rows name {len(numbers)} sources: names of rows instead of models?")
    found = np.full((rows, len(numbers)), np.nan)
    found[tuple(np.array(places, dtype=np.intp).reshape(-1, 2).T)] = credits
    order = sorted(numbers)
    return order, found[:, [numbers[name] for name in order]]


def _fault(row: JudgedRow, sources: tuple[str, ...], best: tuple[int, ...]) -> str:
    """Return why a row says nothing about its sources; empty if it does."""
    if not sources or row.candidates < 2:
        return "no sources"
    if len(set(sources)) < len(sources):
        return "a source against itself"
    if row.left_open:
        return "left open"
    return "" if best else "no verdict"


def _own(row: JudgedRow, sources: tuple[str, ...], best: tuple[int, ...]) -> float:
    """Return the share of the win that the judge gives to its own family, minus the share of the label.

    The result is nan without a label, and unless responses of this and of another family meet.
    """
    family = family_of(row.judge)
    own = {index for index, source in enumerate(sources) if family and family_of(source) == family}
    right = (row.label,) if row.label is not None else (0, 1) if row.tied and len(sources) == 2 else ()
    if not right or not 0 < len(own) < len(sources):
        return np.nan
    judge, label = (sum(index in own for index in chosen) / len(chosen) for chosen in (best, right))
    return judge - label


def family_of(model: str) -> str:
    """Return the letters that begin a model's name without its owner: `llama` for `meta-llama/Llama-3`."""
    found = re.match("[a-z]+", model.rpartition("/")[2].lower())
    return found[0] if found else ""


def _lengths(row: JudgedRow, best: tuple[int, ...]) -> tuple[float, float, float]:
    """Return if the longest response wins, and the lengths of the winner and of the others; nan for a tie."""
    lengths = row.lengths
    if not lengths or len(best) != 1:
        return np.nan, np.nan, np.nan
    winner, others = lengths[best[0]], [one for index, one in enumerate(lengths) if index != best[0]]
    longest = np.nan if winner == max(others) else float(winner > max(others))
    return longest, winner, fmean(others)


def _source_figures(units: Units) -> Figures:
    count = len(units.names)
    won, votes, own = units.values[:, :count], units.measure(VOTES), units.measure(OWN)
    longest, winner, others = map(units.measure, (LONGEST, WINNER_LENGTH, LOSER_LENGTH))
    rates, sections = _rates(units)
    found: dict[str, Mean | Fitted] = {**rates}
    if count > 2:
        fitted = bradley_terry(units.names, won).items()
        found |= dict(sorted(fitted, key=lambda pair: -np.nan_to_num(pair[1].value, nan=-1)))
    if votes.any():
        found[FIRST_SHOWN] = Mean(units.measure(FIRST), votes)
    if (known := np.flatnonzero(~np.isnan(own))).size:
        found[OWN_FAMILY] = Mean(own[known], places=known, is_share=False)
    if (known := np.flatnonzero(~np.isnan(longest))).size:
        found[LONGER] = Mean(longest[known], places=known)
    if others[known := np.flatnonzero(~np.isnan(winner))].any():
        found[LENGTH_RATIO] = Mean(winner[known], others[known], known, is_share=False)
    return found | sections


def bradley_terry(names: tuple[str, ...], won: Values) -> dict[str, Fitted]:
    """Return each source's expected share of wins against the others under the Bradley-Terry model.

    The winner of a row beats every other response of the row, and a tie is half a win for both: the breaking
    of first places that is consistent for lists (Azari Soufiani et al. 2013). The influence of a row on the
    strengths is its score times the inverse information, so that intervals hold for lists and clusters too.
    A source that lost or won everything has no strength, and the others are fitted without it.
    """
    best = np.nan_to_num(won) > 0
    best, other = best.astype(np.float64), (~np.isnan(won) & ~best).astype(np.float64)
    present = best + other
    wins = best.T @ other + (best.T @ best) / 2
    np.fill_diagonal(wins, 0)
    reached = _reached(wins)
    if not reached.all():
        # The largest group whose members have all won against each other, over others if need be, is ranked.
        groups = reached & reached.T
        group = groups[groups.sum(axis=1).argmax()]
        fault = "a source won, lost or met nobody outside of some group, so that it has no strength"
        found = {f"{STRENGTH_OF}{name}": Fitted(np.nan, len(won), np.zeros(0), fault) for name in names}
        if group.sum() > 1:
            kept = tuple(name for name, one in zip(names, group, strict=True) if one)
            known = (present[:, group].sum(axis=1) > 1) & best[:, group].any(axis=1)
            found |= bradley_terry(kept, np.where(known[:, None], won[:, group], np.nan))
        return found
    strength = strengths(wins)
    chances = strength[:, None] / (strength[:, None] + strength)
    np.fill_diagonal(chances, 0)
    games, spread = wins + wins.T, chances * chances.T
    information = np.diag((games * spread).sum(axis=1)) - games * spread
    expected = present * (present @ chances.T) - other * (other @ chances.T)
    scores = best * (other.sum(axis=1) + (best.sum(axis=1) - 1) / 2)[:, None] - expected
    errors = scores @ np.linalg.pinv(information)
    slopes = (np.diag(spread.sum(axis=1)) - spread) / (len(names) - 1)
    shares = chances.sum(axis=1) / (len(names) - 1)
    played = (~np.isnan(won)).sum(axis=0)
    return {
        f"{STRENGTH_OF}{name}": Fitted(float(share), int(n), errors @ slope)
        for name, share, n, slope in zip(names, shares, played, slopes, strict=True)
    }


def _reached(wins: Values) -> NDArray[np.bool_]:
    """Return which sources each source has won against, over others if need be (Ford 1957)."""
    reached = (wins > 0) | np.eye(len(wins), dtype=bool)
    for _ in range(len(wins).bit_length()):
        reached = (reached.astype(np.float64) @ reached) > 0
    return reached
