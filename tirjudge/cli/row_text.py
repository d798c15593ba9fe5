"""A row of a result file as text for the terminal: one line, or everything that led to its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tirjudge.console_text import printable, printable_text
from tirjudge.records.judged_row import RecordedPassage, RecordedRow, RecordedView
from tirjudge.records.text import (
    criterion_heading,
    criterion_text,
    last_program,
    outcome_text,
    program_outputs,
    response_heading,
    reward_text,
    variable_notes,
    verdict_text,
    view_heading,
    view_passages,
    view_verdict,
)
from tirjudge_environments.orders import letter

_NARROWEST = 36
"""Columns that a response needs to be shown next to another one."""
_STYLES = {"right": "green", "wrong": "red"}


def row_line(row: RecordedRow) -> Text:
    """Return a row as one line: id, verdict with its scores or votes, right or wrong, and the last program.

    Untrusted text is escaped.
    """
    outcome = outcome_text(row)
    line = Text(f"{printable(row.id, 24):<12}  {printable(verdict_text(row), 40):<14}  ")
    line.append(f"{outcome:<6}", _STYLES.get(outcome, ""))
    line.append(f"  {last_program(row)}")
    line.rstrip()
    return line


def print_row(console: Console, row: RecordedRow) -> None:
    """Print a row's responses side by side, its criteria, then every dialogue with programs and outputs.

    Untrusted text is escaped. Each dialogue states which response its letters stand for.
    """
    console.print(_heading(row))
    _print_question(console, row)
    _print_criteria(console, row)
    for view in row.views:
        console.print()
        _print_view(console, row, view)
    console.print()


def _heading(row: RecordedRow) -> Text:
    line = Text(f"row {printable(row.id)}", "bold")
    line.append(f": {printable(verdict_text(row))}", "bold")
    outcome = outcome_text(row)
    if row.label is not None:
        line.append(f", the label is {letter(row.label)}: ")
        line.append(outcome, _STYLES.get(outcome, ""))
    if row.detail:
        line.append(f" ({printable(row.detail)})")
    facts = {
        "format": row.format,
        "model": row.model,
        "from": row.where,
        "domain": row.domain,
        "tags": ", ".join(row.tags),
    }
    named = [f"{name} {printable(fact)}" for name, fact in facts.items() if fact]
    line.append("\n" + "; ".join(named), "dim")
    return line


def _print_question(console: Console, row: RecordedRow) -> None:
    if row.prompt is None or row.responses is None:
        console.print("\nThe prompt and the responses are not in the file.", style="dim")
        return
    for message in row.prompt:
        console.print(f"\nprompt, {message.role}:", style="bold")
        console.print(Text(printable_text(message.content)))
    console.print()
    headings = [response_heading(row, index) for index in range(len(row.responses))]
    texts = [Text(printable_text(text)) for text in row.responses]
    for pair in _side_by_side(headings, texts, console.width // _NARROWEST):
        console.print(pair)
    if row.cut:
        console.print("(long responses were cut before they were judged: --truncate)", style="dim")
    if row.reference:
        console.print("\nreference:", style="bold")
        console.print(Text(printable_text(row.reference)))


def _print_criteria(console: Console, row: RecordedRow) -> None:
    """Print every criterion with the responses that satisfy it."""
    for number, criterion in enumerate(row.criteria, 1):
        console.print(Text(f"\n{criterion_heading(number, criterion)}:", "bold"))
        if criterion.text:
            console.print(Text(printable_text(criterion.text)))
        console.print(Text(f"  {criterion_text(criterion)}"))


def _side_by_side(headings: Sequence[str], texts: Sequence[Text], columns: int) -> Iterator[Table]:
    """Yield tables without lines, each with as many responses as fit next to each other."""
    columns = max(1, columns)
    for start in range(0, len(texts), columns):
        shown = range(start, min(start + columns, len(texts)))
        grid = Table.grid(padding=(0, 3), expand=True)
        for _ in shown:
            grid.add_column(ratio=1, overflow="fold")
        grid.add_row(*(Text(headings[index], "bold") for index in shown))
        grid.add_row(*(texts[index] for index in shown))
        yield grid


def _print_view(console: Console, row: RecordedRow, view: RecordedView) -> None:
    console.print(Text(view_heading(view), "bold"))
    for passage, heading, shown in view_passages(view):
        _print_passage(console, heading, passage.text)
        if passage.kind == "program":
            _print_outcome(console, passage, shown)
    console.print(Text(view_verdict(view), "bold"))
    if view.reward is not None:
        console.print(Text(reward_text(view)))


def _print_outcome(console: Console, program: RecordedPassage, shown: str) -> None:
    """Print a program's variables, and its output unless the judge was `shown` all of it."""
    for note in variable_notes(program):
        console.print(Text(f"    {note}", "dim"))
    for heading, text in program_outputs(program, shown):
        _print_passage(console, heading, text)


def _print_passage(console: Console, heading: str, text: str) -> None:
    """Print a text under a heading, indented, so that it cannot pass for one of our own lines."""
    console.print(Text(f"  {heading}", "bold"))
    grid = Table.grid(expand=True)
    grid.add_column(width=4)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("", Text(printable_text(text.rstrip("\n"))))
    console.print(grid)
