"""The head of a report: the number of a run, who won, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge.console_text import counted
from tirjudge.evaluation.judged_rows import JudgedRow
from tirjudge.evaluation.protocols.accuracy import VERDICT
from tirjudge.evaluation.protocols.ratings import RATINGS_PROTOCOL
from tirjudge.evaluation.protocols.win_rate import WIN_RATE
from tirjudge.evaluation.runs import estimate_record
from tirjudge.evaluation.scoring import ProtocolScore
from tirjudge.evaluation.who_won import WhoWon
from tirjudge.judging.tally import EvidenceTally
from tirjudge.report.breakdowns import RowFacts
from tirjudge.statistics.printed import SHARE, bracketed

_MOST_SOURCES = 8
"""Sources whose bars the head of a page has; the table of sources has all."""


def headline(scores: Sequence[ProtocolScore], benchmark: str, tally: EvidenceTally) -> dict[str, Any] | None:
    """Return the number of a benchmark, or the accuracy of other rows; None without either.

    Where undecided rows are ties, which no accuracy should measure, it is that of the decided rows.
    """
    if tally.undecided and tally.is_about_decided and not benchmark:
        credits = tally.decided_credits
        about = "labelled rows whose verdict a program decided"
        return {"name": "accuracy", "about": about, **credits.mean.record()} if credits else None
    if not scores or not (benchmark or scores[0].card.name in (VERDICT.card.name, WIN_RATE.card.name)):
        return None
    scored = scores[0]
    found = scored.estimates[scored.headline]
    name, card = f"{scored.headline}, protocol {scored.card.name}", scored.card
    about = f"{card.about}; ties: {card.ties}; rows without a verdict: {card.failures}"
    return {"name": name, "about": about} | estimate_record(found)


def sentence(facts: Sequence[RowFacts], number: object, won: WhoWon | None, tally: EvidenceTally) -> str:
    """Return what programs decided in words; empty where guesses count, and the `number` says it.

    `won` is who won the rows that programs decided. The names of sources are untrusted.
    """
    verdicts = sum(one.stop == "verdict" for one in facts)
    if not tally.is_about_decided:
        return "" if won or number else f"{verdicts} of {counted(len(facts), 'row')} have a verdict"
    decided, said = "that a program decided", f"{tally.decided} of {tally.known} rows decided by a program"
    if won is not None and tally.decided:
        best, *others = won.sources
        rows = f"of the {counted(best.rate.n or 0, 'row')} {decided}"
        said = f"{best.name} better in {best.wins} {rows}"
        if others and best.wins == others[0].wins:
            said = f"{best.name} and {others[0].name} each better in {best.wins} {rows}"
    elif won is None and (right := tally.decided_credits):
        said = f"Right in {right.total:g} of the {len(right)} labelled rows {decided}"
    return "; ".join([said, *(other.partition(",")[0] for other in tally.others)])


def winner(won: WhoWon | None) -> dict[str, Any] | None:
    """Return who won in words, and the wins, ties and losses of each source; None without sources."""
    if won is None:
        return None
    return {
        "sentence": won.sentence,
        "sources": [
            {
                "name": one.name,
                "wins": one.wins,
                "ties": one.ties,
                "losses": one.losses,
                **estimate_record(one.rate),
            }
            for one in won.sources[:_MOST_SOURCES]
        ],
        "all": len(won.sources),
    }


def trust(
    rows: Sequence[JudgedRow],
    scores: Sequence[ProtocolScore],
    won: WhoWon | None,
    order: Mapping[str, Any] | None,
    *,
    labels_here: bool,
) -> list[dict[str, Any]]:
    """Return what else the result rests on: each a name, a value, notes, and whether labels would answer it.

    `order` is that of `positions`: verdicts in both orders. `labels_here` says whether rows can be labelled
    in the page.
    """
    found, labels = [], _right(scores)
    # Without sources, the accuracy is the headline.
    if won is not None or labels is None:
        unknown = {"value": "unknown", "notes": ["no row has a label"], "asks_for_labels": labels_here}
        found.append({"name": "labels", **(labels or unknown)})
    if any(row.candidates > 1 and row.verdict is not None for row in rows):
        found.append({"name": "order of the responses", **_order(rows, won, order)})
    return [{"asks_for_labels": False} | one for one in found]


def decided(tally: EvidenceTally, won: WhoWon | None) -> dict[str, Any]:
    """Return how many rows programs decided, in the form of `trust`, with who won these rows."""
    found: dict[str, Any] = {"name": "decided by a program", "asks_for_labels": False}
    if not tally.known:
        return found | {"value": "unknown", "notes": ["these rows were judged without evidence"]}
    _, *accuracies = tally.lines()
    # The headline is about the decided rows, unless guesses count.
    wins = (
        [f"of the decided rows, {line}" for line in won.wins()] if won and not tally.is_about_decided else []
    )
    return found | {
        "value": f"{tally.decided} of {tally.known} rows",
        "notes": [*tally.others, *accuracies, *wins],
    }


def _right(scores: Sequence[ProtocolScore]) -> dict[str, Any] | None:
    """Return the accuracy of labelled rows, in the form of `trust`; None without labels."""
    for one in scores:
        found = one.estimates.get("accuracy" if one.card.name == VERDICT.card.name else "Spearman")
        if found is None or math.isnan(found.value):
            continue
        if one.card.name == VERDICT.card.name:
            value, form = f"{found.value:.1%} right", SHARE
            rows = "row" if found.n == 1 else "rows"
            note = f"labelled {rows}; a tie counts in part, a missing verdict as wrong"
        elif one.card.name == RATINGS_PROTOCOL.card.name:
            value, form = f"{found.value:.2f} rank correlation", ".2f"
            note = "rows that people rated"
        else:
            continue
        value = f"{value} {bracketed(found.low, found.high, form)}".rstrip()
        return {"value": value, "notes": [f"of {found.n} {note}"]}
    return None


def _order(rows: Sequence[JudgedRow], won: WhoWon | None, order: Mapping[str, Any] | None) -> dict[str, Any]:
    if order is not None:
        same = order["figures"]["consistency"]
        value = f"{same['value']:.1%} keep their verdict"
        return {"value": value, "notes": [f"of {counted(same['n'], 'pair')} in both orders"]}
    if turned := [row for row in rows if len({vote.order for vote in row.votes if len(vote.order) > 1}) > 1]:
        same = [
            all(len({vote.best for vote in row.sample(one)}) == 1 for one in row.samples) for row in turned
        ]
        kept = sum(same) / len(turned)
        return {
            "value": f"{kept:.1%} keep their verdict",
            "notes": [f"of {len(turned)} rows in several orders"],
        }
    if won is None or won.first_shown is None:
        return {"value": "unknown", "notes": ["--order both shows the responses in two orders"]}
    first, place = won.first_shown, won.preferred_place
    value = f"{first.printed()} for the response shown first"
    return {"value": value, "notes": [f"by chance {won.chance:.0%}{place}"]}
