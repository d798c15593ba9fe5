"""Tables for a paper: scores, comparisons and selections as Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tirjudge.console_text import printable
from tirjudge.statistics.printed import estimated, printed_figure

if TYPE_CHECKING:
    from tirjudge.evaluation.judged_rows import ProtocolCard
    from tirjudge.evaluation.judges import JudgesAgreement
    from tirjudge.evaluation.runs import ScoredRun
    from tirjudge.evaluation.scoring import Comparison, Estimate
    from tirjudge.evaluation.stored_outputs.reading import Replay
    from tirjudge.judging.tally import EvidenceTally
    from tirjudge.selection.best_of_n import SolvedTally

TableFormat = Literal["markdown", "latex", "csv"]
_INTERVAL = "95 % interval"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of a cell that a spreadsheet may read as a formula."""
_MARKDOWN = "\\`*_{}[]<>|#~$&!"
_LATEX = {
    "\\": "\\textbackslash{}",
    "^": "\\textasciicircum{}",
    "~": "\\textasciitilde{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "`": "\\textasciigrave{}",
    # After the end of a line, [ and * would belong to it.
    **{mark: f"{{{mark}}}" for mark in "[]*"},
    **{mark: f"\\{mark}" for mark in "{}$&#%_"},
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a table, as a paper prints it."""

    value: float
    percent: bool = False
    signed: bool = False

    def __str__(self) -> str:
        return self.printed(signed=self.signed)

    def printed(self, *, signed: bool = False) -> str:
        """Return the number, with a plus before a positive one if it is to be `signed`; empty for nan."""
        return printed_figure(self.value, is_share=self.percent, signed=signed, unknown="")


Cell = Number | int | str | None
Row = Mapping[str, Cell]
"""Cells by column. The columns `low` and `high` are one column in Markdown and LaTeX."""


def print_table(rows: Sequence[Row], format: TableFormat) -> None:
    """Print rows, which have the same columns; columns without a cell are left out. Texts are untrusted."""
    names = [name for name in (rows[0] if rows else ()) if any(_text(row[name]) for row in rows)]
    if format == "csv":
        print(_csv(rows, names), end="")
        return
    merged = [_INTERVAL if name == "low" else name for name in names if name != "high"]
    escape = _latex if format == "latex" else _markdown
    cells = [[_merged(row, name, escape) for name in merged] for row in rows]
    right = [name == _INTERVAL or not any(isinstance(row[name], str) for row in rows) for name in merged]
    heads = list(map(escape, merged))
    if format == "latex":
        lines = [" & ".join(one) + " \\\\" for one in (heads, *cells)]
        columns = "".join("r" if one else "l" for one in right)
        body = [f"\\begin{{tabular}}{{{columns}}}", "\\hline", lines[0], "\\hline", *lines[1:], "\\hline"]
        print("\n".join([*body, "\\end{tabular}"]))
        return
    rule = ["---:" if one else "---" for one in right]
    print("\n".join(f"| {' | '.join(one)} |" for one in (heads, rule, *cells)))


def score_rows(
    results: Iterable[ScoredRun], run: str, headlines: Callable[[ScoredRun], Sequence[str]]
) -> list[Row]:
    """Return a row for each of the figures that `headlines` names, and for each published one beside it."""
    from tirjudge.evaluation.scoring import cluster_count

    rows: list[Row] = []
    for one in results:
        card, published = one.score.card, [] if one.fault else one.published
        printed, names = published[0].figure if published else "", list(headlines(one))
        for name in dict.fromkeys([*names, printed] if printed else names):
            found, missing = one.score.estimates[name], one.score.units.counts["no verdict"]
            rows.append(
                {
                    "run": run,
                    **_place(card, name),
                    "value": Number(found.value, card.percent),
                    "low": Number(found.low, card.percent),
                    "high": Number(found.high, card.percent),
                    "n": found.n,
                    "clusters": cluster_count(one.score.units),
                    "source": None,
                    "note": _note(card, missing, found),
                }
            )
            for other in published if name == printed else ():
                cells: dict[str, Cell] = {**dict.fromkeys(rows[-1]), "run": other.model, **_place(card, name)}
                cells["value"] = Number(other.value, card.percent)
                rows.append(cells | {"source": f"{other.paper}, {other.table}"})
    return rows


def print_judges(runs: Sequence[Replay], named: Sequence[str], *, seed: int) -> bool:
    """Print what a paper says of each judge in LaTeX; return False without accuracy, and print nothing.

    Accuracy is that of the first protocol that has it.
    """
    from tirjudge.evaluation.protocols.agreement import KAPPA
    from tirjudge.evaluation.runs import default_protocols, score_run

    rows: list[Row] = []
    columns = {"accuracy": "accuracy, %", "consistency": "consistency, %", "judge and label": "kappa"}
    protocols: dict[str, None] = {}
    for run in runs:
        names = [*(named or default_protocols(run)), "position", KAPPA.card.name]
        cells: dict[str, Cell] = {"judge": run.name, "n": None, **dict.fromkeys(columns.values())}
        for one in (found.score for found in score_run(run, names, run.benchmark, seed=seed)[0]):
            for figure, column in columns.items():
                if cells[column] is None and figure in one.estimates:
                    cells[column] = _short(one.estimates[figure], one.card)
                    if figure == "accuracy":
                        cells["n"] = one.estimates[figure].n
                        protocols[one.card.quoted] = None
        rows.append(cells)
    if not protocols:
        return False
    accuracy = printable(", ".join(protocols))
    print(f"% accuracy: {accuracy}; kappa: {KAPPA.card.order}; in brackets: 95 % intervals")
    print_table(rows, "latex")
    return True


def agreement_rows(agreement: JudgesAgreement, names: Sequence[str]) -> list[Row]:
    """Return a row for every two judges, and one for all of them."""
    from tirjudge.evaluation.protocols.agreement import KAPPA, THREE_CLASS

    empty = dict.fromkeys(("equal verdicts, %", "kappa", "Krippendorff's alpha", "n"))
    rows: list[Row] = [
        {
            "judges": f"{names[one]}, {names[other]}",
            **empty,
            "equal verdicts, %": _short(equal, THREE_CLASS.card),
            "kappa": _short(kappa, KAPPA.card),
            "n": equal.n,
        }
        for one, other, equal, kappa in agreement.pairs
    ]
    alpha = agreement.alpha
    all_judges = {"judges": "all", "Krippendorff's alpha": _short(alpha, KAPPA.card), "n": alpha.n}
    return [*rows, {**rows[0], **empty, **all_judges}]


def _short(found: Estimate, card: ProtocolCard) -> str:
    """Return a number with its interval as papers print them: per cent with one decimal, others with two."""
    scale, form = (100, ".1f") if card.percent else (1, ".2f")
    shown = estimated(scale * found.value, scale * found.low, scale * found.high, form)
    return "" if math.isnan(found.value) else shown


def evidence_rows(tally: EvidenceTally, run: str) -> list[Row]:
    """Return rows for the verdicts that programs decided, and the accuracy of both kinds; none if unknown."""
    if not tally.known:
        return []
    share: Row = {"value": Number(tally.decided / tally.known, percent=True), "n": tally.known}
    rows: list[Row] = [_of_evidence(run, "decided by a program", share, "; ".join(tally.others))]
    for figure, credits in (
        ("accuracy of decided rows", tally.decided_credits),
        ("accuracy of guesses", tally.guesses),
    ):
        if credits:
            found = credits.mean
            low, high = (Number(bound, percent=True) for bound in found.bounds or (math.nan, math.nan))
            cells: Row = {
                "value": Number(found.rate, percent=True),
                "low": low,
                "high": high,
                "n": found.n,
                "clusters": found.clusters,
            }
            note = f"no interval: {found.fault}" if found.fault else ""
            rows.append(_of_evidence(run, figure, cells, note))
    return rows


def _of_evidence(run: str, figure: str, cells: Row, note: str) -> Row:
    names = ("run", "protocol", "figure", "unit", "value", "low", "high", "n", "clusters", "source", "note")
    place = {"run": run, "protocol": "evidence", "figure": figure, "unit": "%", "note": note}
    return {**dict.fromkeys(names), **place, **cells}


def _place(card: ProtocolCard, figure: str) -> dict[str, Cell]:
    return {"protocol": card.name, "figure": figure, "unit": "%" if card.percent else ""}


def _note(card: ProtocolCard, missing: int, found: Estimate) -> str:
    """Return what stands behind a number: missing verdicts that count as ties, and why it has no interval."""
    notes = [f"{missing} missing verdicts counted as ties"] if missing and card.missing_ties else []
    return "; ".join([*notes, *([f"no interval: {found.no_interval}"] if found.no_interval else [])])


def comparison_rows(
    results: Iterable[tuple[Comparison, tuple[str, str]]], figures: Callable[[Comparison], Sequence[str]]
) -> list[Row]:
    """Return a row for each of the differences that `figures` names."""
    rows: list[Row] = []
    for one, (first, second) in results:
        percent = one.card.percent
        for number, name in enumerate(figures(one)):
            found = one.differences[name]
            tested = number == 0 and one.p_value is not None
            rows.append(
                {
                    "first run": first,
                    "second run": second,
                    **_place(one.card, name),
                    "first": Number(one.first[name], percent),
                    "second": Number(one.second[name], percent),
                    "difference": Number(found.value, percent, signed=True),
                    "low": Number(found.low, percent, signed=True),
                    "high": Number(found.high, percent, signed=True),
                    "n": found.n,
                    "clusters": one.clusters,
                    "p": Number(one.p_value) if tested and one.p_value is not None else None,
                    "p by Holm": Number(one.p_holm) if tested and one.p_holm is not None else None,
                    "test": one.test if tested else None,
                    "note": _note(one.card, sum(one.no_verdict), found),
                }
            )
    return rows


def selection_rows(tally: SolvedTally, run: str) -> list[Row]:
    """Return a row for each way to select from N candidates."""
    rows: list[Row] = []
    for line in tally.lines:
        solved = line.solved
        low, high = (None, None) if solved is None or solved.bounds is None else solved.bounds
        rows.append(
            {
                "run": run,
                "protocol": "best of N",
                "select by": line.name,
                "unit": "" if solved is None else "%",
                "solved": None if solved is None else Number(solved.rate, percent=True),
                "low": None if low is None else Number(low, percent=True),
                "high": None if high is None else Number(high, percent=True),
                "n": tally.questions if solved is None else solved.n,
                "clusters": None if solved is None else solved.clusters,
                "judgments": line.judgments,
                "undecided": line.undecided,
                "note": f"no interval: {solved.fault}" if solved is not None and solved.fault else "",
            }
        )
    return rows


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _merged(row: Row, name: str, escape: Callable[[str], str]) -> str:
    if name != _INTERVAL:
        cell = row[name]
        return escape(printable(cell)) if isinstance(cell, str) else _number(cell, escape)
    low, high = (_number(row[bound], escape) for bound in ("low", "high"))
    return f"{low} to {high}" if low and high else ""


def _number(cell: Cell, escape: Callable[[str], str]) -> str:
    text = _text(cell)
    return f"${text}$" if escape is _latex and text[:1] in ("+", "-") else text


def _markdown(text: str) -> str:
    return "".join(f"\\{one}" if one in _MARKDOWN else one for one in text)


def _latex(text: str) -> str:
    # Two hyphens would become a dash.
    return "".join(_LATEX.get(one, one) for one in text).replace("--", "-{}-{}")


def _csv(rows: Sequence[Row], names: Sequence[str]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_plain(row[name]) for name in names])
    return file.getvalue()


def _plain(cell: Cell) -> str:
    """Return a cell that no spreadsheet reads as a formula; numbers have no plus."""
    if not isinstance(cell, str):
        return cell.printed() if isinstance(cell, Number) else _text(cell)
    shown = printable(cell)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
