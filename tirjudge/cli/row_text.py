"""A row of a result file as text for the terminal: one line, or everything that led to its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tirjudge.console_text import printable, printable_text
from tirjudge.judging.result_rows import RecordedPassage, RecordedRow, RecordedView
from tirjudge_environments.orders import letter, letters

_NARROWEST = 36
"""Columns that a response needs to be shown next to another one."""
_STYLES = {"right": "green", "wrong": "red"}


def row_line(row: RecordedRow) -> Text:
    """Return a row as one line: id, verdict with its scores or votes, right or wrong, and the last program.

    Untrusted text is escaped.
    """
    outcome = _outcome(row)
    line = Text(f"{printable(row.id, 24):<12}  {printable(_verdict(row), 40):<14}  ")
    line.append(f"{outcome:<6}", _STYLES.get(outcome, ""))
    line.append(f"  {_last_program(row)}")
    line.rstrip()
    return line


def print_row(console: Console, row: RecordedRow) -> None:
    """Print a row's responses side by side, then every dialogue with its programs, outputs and reward.

    Untrusted text is escaped. Each dialogue states which response its letters stand for.
    """
    console.print(_heading(row))
    _print_question(console, row)
    for view in row.views:
        console.print()
        _print_view(console, row, view)
    console.print()


def _outcome(row: RecordedRow) -> str:
    if row.correct is None:
        return ""
    return {1.0: "right", 0.0: "wrong"}.get(row.correct, f"{row.correct:.2g}")


def _verdict(row: RecordedRow) -> str:
    """Return the verdict with the scores, or with the share of the views that agree."""
    if row.verdict is None and not row.scores:
        return row.stop
    parts = [row.verdict] if row.verdict else []
    if row.scores:
        parts.append(":".join("-" if score is None else f"{score:.3g}" for score in row.scores))
    elif len(row.views) > 1:
        chosen = [view.verdict.choice for view in row.views if view.verdict is not None]
        agreeing = sum(choice is not None and letter(choice) == row.verdict for choice in chosen)
        parts.append("" if row.verdict == "tie" else f"{agreeing}/{len(row.views)}")
    return " ".join(parts).rstrip()


def _last_program(row: RecordedRow) -> str:
    """Return the first line that the last program printed, and the last line of the program.

    A program of a view in the row's order is preferred: the letters that it prints are those of the verdict.
    For another one, the line says what its letters stand for.
    """
    found = [(view.order, one) for view in row.views for one in view.segments if one.kind == "program"]
    if not found:
        return ""
    order, last = next((pair for pair in reversed(found) if _is_given(pair[0])), found[-1])
    code = next((line.strip() for line in reversed(last.text.splitlines()) if line.strip()), "")
    output = (last.stdout.strip().splitlines() or ["(no output)"])[0]
    if last.status != "ok":
        output = f"{last.status}: {_last_line(last.stderr or last.reason)}"
    shown, meant = letters(len(order)), map(letter, order)
    note = "" if _is_given(order) else f" (its {','.join(shown)}: {','.join(meant)})"
    # The output comes first: it decided the verdict, and a narrow terminal cuts the end of the line.
    return printable(f"{output[:60]}{note} <- {code}", 140)


def _is_given(order: Sequence[int]) -> bool:
    """Return True if a view's letters are those of the row."""
    return list(order) == list(range(len(order)))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _heading(row: RecordedRow) -> Text:
    line = Text(f"row {printable(row.id)}", "bold")
    line.append(f": {printable(_verdict(row))}", "bold")
    outcome = _outcome(row)
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
    headings = [_response_heading(row, index) for index in range(len(row.responses))]
    texts = [Text(printable_text(text)) for text in row.responses]
    for pair in _side_by_side(headings, texts, console.width // _NARROWEST):
        console.print(pair)
    if row.cut:
        console.print("(long responses were cut before they were judged: --truncate)", style="dim")


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


def _response_heading(row: RecordedRow, index: int) -> str:
    name = letter(index)
    notes = ["chosen"] * (row.verdict == name) + ["label"] * (row.label == index)
    return f"response {name}" + (f" ({', '.join(notes)})" if notes else "") + ":"


def _print_view(console: Console, row: RecordedRow, view: RecordedView) -> None:
    sample = f", sample {view.sample}" if view.sample else ""
    console.print(Text(f"view {printable(view.view)}{sample}: {order_note(view.order)}", "bold"))
    outputs = [passage.text for passage in view.segments if passage.kind == "output"]
    number = 0
    for passage in view.segments:
        if passage.kind == "program":
            number += 1
            _print_program(console, passage, number, "".join(outputs[number - 1 : number]))
        else:
            heading = "shown to the judge" if passage.kind == "output" else passage.kind
            _print_passage(console, f"{'hidden ' * passage.hidden}{heading}", passage.text)
    console.print(Text(_view_verdict(view), "bold"))
    if view.reward is not None:
        console.print(Text(_reward(view)))


def order_note(order: Sequence[int]) -> str:
    """Return what the letters in a dialogue stand for, given the candidate at each shown position."""
    if len(order) == 1:
        return f"the judge sees only response {letter(order[0])}"
    if _is_given(order):
        return "the judge sees the responses in the order of the row"
    places = [f"its {letter(place)} is response {letter(index)}" for place, index in enumerate(order)]
    return f"the judge sees the responses in another order: {', '.join(places)}"


def _print_program(console: Console, program: RecordedPassage, number: int, shown: str) -> None:
    """Print a program with its variables, and its output unless the judge was `shown` all of it."""
    heading = f"program {number}: {printable(program.status)}"
    if program.exit_code:
        heading += f", exit code {program.exit_code}"
    _print_passage(console, heading, program.text)
    for name, reference in (program.bindings or {}).items():
        if isinstance(reference, int) and 0 <= reference < 2**31:
            console.print(Text(f"    {printable(name)} is response {letter(reference)}", "dim"))
    if program.status == "refused":
        _print_passage(console, "refused", program.reason)
        return
    if program.stdout.strip() not in shown:
        _print_passage(console, "standard output", program.stdout)
    if program.stderr:
        _print_passage(console, "standard error", program.stderr)


def _print_passage(console: Console, heading: str, text: str) -> None:
    """Print a text under a heading, indented, so that it cannot pass for one of our own lines."""
    console.print(Text(f"  {heading}", "bold"))
    grid = Table.grid(expand=True)
    grid.add_column(width=4)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row("", Text(printable_text(text.rstrip("\n"))))
    console.print(grid)


def _view_verdict(view: RecordedView) -> str:
    verdict = view.verdict
    if verdict is None:
        return f"no verdict: {printable(view.stop)}" + (f" ({printable(view.detail)})" if view.detail else "")
    if verdict.tie:
        return "verdict: a tie"
    scores = ", ".join(f"{printable(_name(index))} {score:g}" for index, score in verdict.scores.items())
    if verdict.choice is None:
        return f"scores: {scores}"
    named = f"verdict: response {letter(verdict.choice)}"
    if verdict.choice in view.order and not _is_given(view.order):
        named += f", which this dialogue calls {letter(view.order.index(verdict.choice))}"
    return f"{named}; scores: {scores}" if scores else named


def _name(index: str) -> str:
    return letter(int(index)) if index.isdecimal() and len(index) < 10 else index


def _reward(view: RecordedView) -> str:
    reward = view.reward
    if reward is None or reward.total is None:
        return f"no reward: {printable(reward.unscored if reward else '')}"
    parts = ", ".join(
        f"{printable(name)} {'-' if part is None else f'{part:g}'}" for name, part in reward.parts.items()
    )
    return f"reward {reward.total:g}" + (f" ({parts})" if parts else "")
