"""Numbers of a run's rows: accuracy by group, positions, distributions, costs and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tirjudge.console_text import printable
from tirjudge.evaluation.judged_rows import JudgedRow, Unscorable, Vote
from tirjudge.evaluation.protocols.behaviour import POSITION
from tirjudge.evaluation.scoring import own_order, reversed_order, score
from tirjudge.generation.spending import Price
from tirjudge.records.result_row import ResultRow
from tirjudge.records.text import program_end
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge.statistics.estimators import Credits
from tirjudge_environments import Usage
from tirjudge_environments.messages import whole_text

_MOST_GROUPS = 40
"""Groups of a breakdown that a page lists; tags may be as many as rows."""
_BINS = 20
_LONGEST_CRITERION = 160


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The facts of a row that it is grouped by, without its texts."""

    credit: float | None
    """1 if right, 1/k for a tie of k, 0 if wrong; None without a label."""
    prompt: str
    """What rows with the same prompt have in common; empty in files without texts."""
    domain: str
    tags: tuple[str, ...]
    length: int
    """Characters of the responses, or prompt tokens where the file has no texts."""
    in_characters: bool
    calls: int
    failed: int
    stop: str
    detail: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    label: int | None
    scores: tuple[float | None, ...]
    statuses: tuple[str, ...]
    """The end of each program."""
    criteria: tuple[tuple[str, tuple[float | None, ...]], ...]
    """Each criterion of the row, with 1, 0 or a share of a tie for every response, None without a verdict."""

    @classmethod
    def of(cls, row: ResultRow) -> RowFacts:
        programs = [one for view in row.views for one in view.segments if one.kind == "program"]
        has_texts = row.responses is not None
        return cls(
            credit=row.correct,
            prompt=prompt_cluster(row.prompt and [one.model_dump() for one in row.prompt]),
            domain=row.domain,
            tags=tuple(row.tags),
            length=sum(len(whole_text(one)) for one in row.shown_responses)
            if has_texts
            else row.prompt_tokens,
            in_characters=has_texts,
            calls=len(programs),
            failed=row.programs_failed,
            stop=row.stop,
            detail=row.detail,
            prompt_tokens=row.prompt_tokens,
            completion_tokens=row.completion_tokens,
            seconds=row.seconds,
            label=row.label,
            scores=tuple(row.scores or ()),
            statuses=tuple(map(program_end, programs)),
            criteria=tuple((one.text, tuple(one.satisfied)) for one in row.criteria if one.text),
        )


def breakdowns(facts: Sequence[RowFacts]) -> list[dict[str, Any]]:
    """Return the accuracy of labelled rows by domain, tag, length and tool use, where there are several."""
    labelled = [one for one in facts if one.credit is not None]
    if not labelled:
        return []
    length_of, length_title = _lengths(labelled)
    found = [
        ("domain", _grouped(labelled, lambda one: [one.domain or "no domain"])),
        ("tag", _grouped(labelled, lambda one: one.tags or ("no tag",))),
        (length_title, _grouped(labelled, length_of, in_order=True)),
        ("programs", _grouped(labelled, _tool_use, in_order=True)),
    ]
    return [{"title": title, "groups": groups} for title, groups in found if len(groups) > 1]


def _grouped(
    facts: Sequence[RowFacts], names: Callable[[RowFacts], Iterable[str]], *, in_order: bool = False
) -> list[dict[str, Any]]:
    credits: dict[str, Credits] = {}
    for one in facts:
        for name in names(one):
            credits.setdefault(name, Credits()).add(one.credit or 0.0, one.prompt)
    if in_order:
        # The first character is the place of a name, and is not shown.
        named = [(name[2:], found) for name, found in sorted(credits.items())]
    else:
        named = sorted(credits.items(), key=lambda pair: -len(pair[1]))
    groups = [{"name": name, **found.mean.record()} for name, found in named]
    return groups[:_MOST_GROUPS]


def criteria_shares(facts: Sequence[RowFacts]) -> list[dict[str, Any]]:
    """Return the share of responses that satisfy each criterion; criteria of most responses first.

    `unknown` counts the responses without a verdict, which the share leaves out.
    """
    found: dict[str, Credits] = {}
    unknown: Counter[str] = Counter()
    for number, one in enumerate(facts):
        for text, satisfied in one.criteria:
            shares = found.setdefault(text, Credits())
            unknown[text] += sum(share is None for share in satisfied)
            for share in satisfied:
                if share is not None:
                    # The responses of a row depend on each other.
                    shares.add(share, one.prompt or str(number))
    groups = []
    for text, shares in sorted(found.items(), key=lambda pair: -len(pair[1]) - unknown[pair[0]])[
        :_MOST_GROUPS
    ]:
        name = printable(text, _LONGEST_CRITERION)
        name += f" ({unknown[text]} unknown)" if unknown[text] else ""
        groups.append({"name": name, **shares.mean.record()})
    return groups


def _tool_use(one: RowFacts) -> list[str]:
    count = ("0 no program", "1 one program", "2 two programs", "3 three or more")[min(one.calls, 3)]
    return [count, *(["4 of these, with a failed program"] if one.failed else [])]


def _lengths(facts: Sequence[RowFacts]) -> tuple[Callable[[RowFacts], list[str]], str]:
    """Return the quarter of a row's length, and the title of the breakdown."""
    bounds = np.unique(np.quantile([one.length for one in facts], [0.25, 0.5, 0.75]).round().astype(int))
    unit = "characters" if facts[0].in_characters else "tokens"
    title = "length of the responses" if facts[0].in_characters else "length of the prompt"

    def quarter(one: RowFacts) -> list[str]:
        place = int(np.searchsorted(bounds, one.length, side="left"))
        if place == 0:
            name = f"up to {bounds[0]:,}"
        elif place == len(bounds):
            name = f"over {bounds[-1]:,}"
        else:
            name = f"{bounds[place - 1] + 1:,} to {bounds[place]:,}"
        return [f"{place} {name} {unit}"]

    return quarter, title


def positions(rows: Sequence[JudgedRow]) -> dict[str, Any] | None:
    """Return how verdicts change with the order of pairs; None if not all rows are pairs in both orders."""
    if any(row.candidates != 2 for row in rows):
        return None
    cells: Counter[tuple[str, str]] = Counter()
    try:
        found = score(POSITION, rows)
        for row in rows:
            cells[_place(own_order(row)), _place(reversed_order(row))] += 1
    except Unscorable:
        return None
    names = ["first", "second", "tie", "none"]
    return {
        "names": names,
        "cells": [[cells[one, other] for other in names] for one in names],
        "figures": {
            name: {"value": one.value, "low": one.low, "high": one.high, "n": one.n}
            for name, one in found.estimates.items()
        },
    }


def _place(vote: Vote) -> str:
    """Return the place that a vote chose: the response shown first or second, a tie, or none."""
    if vote.choice is None:
        return "tie" if vote.tie else "none"
    return "first" if vote.choice == vote.order[0] else "second"


def histograms(facts: Sequence[RowFacts]) -> list[dict[str, Any]]:
    """Return the distribution of scores, apart for labelled and other responses; of tokens and of seconds.

    A distribution of a single value is left out.
    """
    best = [
        value for one in facts for n, value in enumerate(one.scores) if value is not None and n == one.label
    ]
    others = [
        value for one in facts for n, value in enumerate(one.scores) if value is not None and n != one.label
    ]
    named: list[tuple[str, str, dict[str, list[float]]]] = [
        ("score", "", {"labelled best": best, "other responses": others} if best else {"responses": others}),
        ("completion tokens per row", "tokens", {"rows": [float(one.completion_tokens) for one in facts]}),
        ("seconds per row", "s", {"rows": [one.seconds for one in facts]}),
    ]
    return [
        {"title": title, "unit": unit, **_binned(series)}
        for title, unit, series in named
        if len({value for values in series.values() for value in values}) > 1
    ]


def _binned(series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    every = np.array([value for values in series.values() for value in values], dtype=float)
    low, high = float(every.min()), float(every.max())
    whole = bool(np.all(every == every.round()))
    if whole and high - low < _BINS:
        edges = np.arange(low, high + 2) - 0.5
    else:
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    return {
        "edges": [float(edge) for edge in edges],
        "whole": whole and high - low < _BINS,
        "series": {
            name: np.histogram(values, edges)[0].astype(int).tolist() for name, values in series.items()
        },
    }


def costs(facts: Sequence[RowFacts], price: Price | None) -> dict[str, Any]:
    """Return totals, medians and extremes of tokens, seconds and programs, and the money at a price."""
    columns: dict[str, list[float]] = {
        "prompt tokens": [one.prompt_tokens for one in facts],
        "completion tokens": [one.completion_tokens for one in facts],
        "seconds": [one.seconds for one in facts],
        "programs": [one.calls for one in facts],
    }
    found: dict[str, Any] = {"table": []}
    for name, values in columns.items():
        middle, most, largest = np.quantile(values, [0.5, 0.9, 1.0]).tolist()
        row = {"name": name, "total": sum(values), "median": middle, "p90": most, "largest": largest}
        found["table"].append(row)
    if price is not None:
        usage = Usage(sum(one.prompt_tokens for one in facts), sum(one.completion_tokens for one in facts))
        found["money"] = price.of(usage)
        found["money_per_row"] = found["money"] / len(facts)
    return found


def endings(facts: Sequence[RowFacts], failures: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how rows and programs ended, with the most frequent detail of each kind, and failed rows."""
    details: dict[str, Counter[str]] = {}
    for one in facts:
        details.setdefault(one.stop, Counter())[one.detail] += 1
    reasons = Counter(str(failure.get("reason")) for failure in failures)
    return {
        "rows": [
            [stop, found.total(), found.most_common(1)[0][0]]
            for stop, found in sorted(details.items(), key=lambda pair: -pair[1].total())
        ],
        "programs": Counter(status for one in facts for status in one.statuses).most_common(),
        "failed": reasons.most_common(_MOST_GROUPS),
    }
