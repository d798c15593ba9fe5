"""Published figures as people read them: beside a score, and by benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from tirjudge.cli.score_tables import console, plain
from tirjudge.evaluation.published import ANY, Published, published
from tirjudge.evaluation.scoring import Score


def beside(score: Score, benchmark: str) -> list[Published]:
    """What papers print under the same protocol, for the first of our figures that any of them prints.

    Each value once, the highest first. What a paper prints over all of its benchmarks stands beside those.
    Empty where no paper has one.
    """
    papers = {one.paper for one in published() if one.benchmark == benchmark}
    alike = [
        one
        for one in published()
        if one.benchmark == benchmark or (one.benchmark == ANY and one.paper in papers)
        if (one.protocol, one.unit) == (score.card.name, "share")
    ]
    for figure, ours in score.estimates.items():
        found = {(one.paper, one.model, one.value): one for one in reversed(alike) if one.figure == figure}
        if found and not math.isnan(ours.value):
            return sorted(found.values(), key=lambda one: -one.value)
    return []


def print_beside(score: Score, found: Sequence[Published]) -> None:
    """Published figures and how far ours is from each."""
    if not found:
        return
    figure = found[0].figure
    ours = score.estimates[figure].value
    over = ", over the paper's benchmarks together" if found[0].benchmark == ANY else ""
    table = Table(title=plain(f"published under {score.card.name}: {figure}{over}"), title_justify="left")
    for name in ("paper", "table", "model"):
        table.add_column(name, overflow="fold")
    for name in ("value", "ours minus it"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            *map(plain, (one.paper, one.table, one.model)),
            _percent(one.value),
            f"{100 * (ours - one.value):+.2f}",
        )
    console().print(table)


def print_others(benchmark: str, shown: Sequence[str]) -> None:
    """One line for each other protocol under which papers print figures on the benchmark."""
    others: dict[str, set[str]] = {}
    for one in published(benchmark) if benchmark else ():
        if one.protocol not in shown:
            others.setdefault(one.protocol, set()).add(one.paper)
    for protocol, papers in others.items():
        line = f"under {protocol}, not comparable with the above: {', '.join(sorted(papers))}"
        console().print(line, markup=False)
    if others:
        console().print(f"tirjudge eval --published {benchmark} prints all figures", markup=False)


def print_published(benchmark: str) -> None:
    """All figures of a benchmark; raises ValueError for one that no paper has."""
    found = published(benchmark)
    if not found:
        known = sorted({one.benchmark for one in published()} - {"unknown"})
        raise ValueError(f"no published figures on {benchmark!r}; there are {', '.join(known)}")
    table = Table()
    for name in ("paper", "table", "model", "figure", "protocol"):
        table.add_column(name, overflow="fold")
    table.add_column("value", justify="right")
    for one in found:
        protocol = f"{one.protocol} ({one.because})" if one.because else one.protocol
        value = _percent(one.value) if one.unit == "share" else f"{one.value:g} {one.unit}"
        table.add_row(*map(plain, (one.paper, one.table, one.model, one.figure, protocol)), value)
    console().print(table)


def published_record(one: Published) -> dict[str, object]:
    return {
        "paper": one.paper,
        "table": one.table,
        "model": one.model,
        "figure": one.figure,
        "value": one.value,
    }


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
