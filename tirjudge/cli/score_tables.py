"""Scores as people read them: tables on the terminal, and records for a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tirjudge.console_text import printable
from tirjudge.evaluation.base import ProtocolCard
from tirjudge.evaluation.scoring import Comparison, Estimate, Score

_NARROWEST = 100


def print_score(score: Score) -> None:
    """A table of the figures, and below it what they are and what the policy met with."""
    card = score.card
    table = Table(title=plain(card.name), title_justify="left")
    table.add_column("", overflow="fold")
    for name in ("value", "95 % interval", "n"):
        table.add_column(name, justify="right")
    for name, estimate in score.estimates.items():
        n = "" if estimate.n is None else str(estimate.n)
        table.add_row(plain(name), _number(estimate.value, card), _interval(estimate, card), n)
    terminal = console()
    terminal.print(table)
    _print_policy(terminal, card, score.units.counts)


def print_comparison(comparison: Comparison, names: Sequence[str]) -> None:
    card = comparison.card
    table = Table(title=plain(card.name), title_justify="left")
    table.add_column("", overflow="fold")
    for name in (*names, "difference", "95 % interval"):
        table.add_column(plain(name), justify="right", overflow="fold")
    for name, estimate in comparison.differences.items():
        table.add_row(
            plain(name),
            _number(comparison.first[name], card),
            _number(comparison.second[name], card),
            _number(estimate.value, card, signed=True),
            _interval(estimate, card, signed=True),
        )
    terminal = console()
    terminal.print(table)
    left_out = f", {comparison.left_out} in one run alone" if comparison.left_out else ""
    terminal.print(f"{comparison.common} units in both runs{left_out}; paired bootstrap", markup=False)
    if comparison.p_value is not None:
        terminal.print(
            f"the second alone is right {comparison.gained} times, the first alone {comparison.lost} times: "
            f"p = {comparison.p_value:.3g} (McNemar, exact)",
            markup=False,
        )
    _print_policy(terminal, card, {})


def print_protocols(cards: Sequence[ProtocolCard]) -> None:
    table = Table()
    for name in ("protocol", "what is counted", "ties", "no verdict", "source"):
        table.add_column(name, overflow="fold")
    for card in cards:
        table.add_row(*map(plain, (card.name, card.about, card.ties, card.failures, card.source)))
    console().print(table)


def score_record(score: Score) -> dict[str, object]:
    """A score as JSON: figures as shares, not as percentages; null for what is not known."""
    return _card_record(score.card) | {
        "figures": {name: _estimate_record(one) for name, one in score.estimates.items()},
        "units": len(score.units.ids),
        "counts": dict(score.units.counts),
    }


def comparison_record(comparison: Comparison) -> dict[str, object]:
    return _card_record(comparison.card) | {
        "first": {name: _finite(value) for name, value in comparison.first.items()},
        "second": {name: _finite(value) for name, value in comparison.second.items()},
        "differences": {name: _estimate_record(one) for name, one in comparison.differences.items()},
        "common": comparison.common,
        "left_out": comparison.left_out,
        "gained": comparison.gained,
        "lost": comparison.lost,
        "p_value": comparison.p_value,
    }


def _card_record(card: ProtocolCard) -> dict[str, object]:
    return {"protocol": card.name, "about": card.about, "ties": card.ties, "failures": card.failures}


def _estimate_record(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _finite(estimate.value),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
        "n": estimate.n,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _print_policy(terminal: Console, card: ProtocolCard, counts: Mapping[str, int]) -> None:
    source = f" ({card.source})" if card.source else ""
    terminal.print(f"{card.about}{source}", markup=False)
    terminal.print(f"ties: {card.ties}; rows without a verdict: {card.failures}", markup=False)
    met = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if met:
        terminal.print(f"met with: {printable(met)}", markup=False)
    terminal.print()


def _number(value: float, card: ProtocolCard, *, signed: bool = False) -> str:
    if math.isnan(value):
        return "-"
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.2f}" if card.percent else f"{value:{sign}.4g}"


def _interval(estimate: Estimate, card: ProtocolCard, *, signed: bool = False) -> str:
    if math.isnan(estimate.low):
        return ""
    low, high = (_number(bound, card, signed=signed) for bound in (estimate.low, estimate.high))
    return f"{low} to {high}"


def plain(text: str) -> Text:
    """Text of rows and models: no markup, no control characters."""
    return Text(printable(text))


def console() -> Console:
    """As wide as the terminal, and wide enough for a table where there is none."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=max(_NARROWEST, terminal.width))
