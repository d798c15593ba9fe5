"""Rows and dialogues as HTML of a notebook. All texts are escaped, and no script or style comes from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from tirjudge.console_text import counted, printable, printable_text
from tirjudge.records.result_row import RecordedView, ResultRow
from tirjudge.records.text import (
    audit_lines,
    criterion_heading,
    criterion_text,
    decided_text,
    deciding_lines,
    evidence_text,
    headed_views,
    outcome_text,
    program_outputs,
    prompt_parts,
    response_heading,
    verdict_text,
    view_passages,
    view_verdict,
)
from tirjudge_environments.messages import response_text

_LONGEST_TEXT = 20_000
_LONGEST_CELL = 160
MOST_ROWS = 50
"""Rows of a table; a notebook keeps all that it shows."""
_LEFT = 'style="text-align: left; vertical-align: top"'
_PRE = 'style="white-space: pre-wrap; overflow-wrap: anywhere; text-align: left"'


def row_html(row: ResultRow) -> str:
    """Return a row: its verdict, the question with the responses, the criteria, and every dialogue folded."""
    facts = filter(None, (verdict_text(row), outcome_text(row), decided_text(row), row.detail))
    parts = [f"<p><strong>{_line(row.id)}</strong>: {' · '.join(map(_line, facts))}</p>"]
    if row.prompt and row.responses:
        texts = [*prompt_parts(row)]
        texts += [
            (response_heading(row, index).removesuffix(":"), response_text(response, _LONGEST_TEXT))
            for index, response in enumerate(row.shown_responses)
        ]
        parts += [_text(heading, text) for heading, text in texts]
    if row.reference:
        parts.append(_text("reference", row.reference))
    for number, criterion in enumerate(row.criteria, 1):
        parts.append(_text(criterion_heading(number, criterion), criterion.text))
        said = [criterion_text(criterion), *audit_lines(row, number - 1)]
        parts += [f"<p>{_line(line)}</p>" for line in said]
    for heading, view in headed_views(row):
        parts.append(f"<details><summary>{_line(heading)}</summary>")
        parts.append(f"{_dialogue(view)}</details>")
    return _framed(parts)


def reasoning_html(heading: str, reasoning: str, lines: Sequence[str]) -> str:
    """Return a dialogue of which only the judge's words are known."""
    said = "".join(f"<p>{_line(line)}</p>" for line in lines if line)
    return _framed([f"<p><strong>{_line(heading)}</strong></p>", _pre(reasoning), said])


def table_html(rows: Iterable[ResultRow | tuple[str, str]], about: str) -> str:
    """Return a table of rows; a pair is the id of a row that could not be judged, and why."""
    shown: list[tuple[str, ...]] = []
    more = 0
    for row in rows:
        if len(shown) == MOST_ROWS:
            more += 1
        else:
            shown.append(_cells(row))
    head = "".join(f"<th {_LEFT}>{name}</th>" for name in ("row", "prompt", "verdict", "", "decided", "why"))
    body = "".join(f"<tr>{''.join(f'<td {_LEFT}>{_line(cell)}</td>' for cell in row)}</tr>" for row in shown)
    rest = [f"<p>and {counted(more, 'more row')}</p>"] if more else []
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return _framed([f"<p>{_line(about)}</p>", table, *rest])


def _cells(row: ResultRow | tuple[str, str]) -> tuple[str, ...]:
    if isinstance(row, tuple):
        return (row[0], "", "no result", "", "", row[1])
    prompt = next((one.content for one in reversed(row.prompt or ()) if one.content), "")
    why = " ← ".join(filter(None, deciding_lines(row)))
    decided = {True: "yes", False: "no", None: ""}[row.verdict_decided]
    return (row.id, " ".join(prompt.split()), verdict_text(row), outcome_text(row), decided, why)


def _dialogue(view: RecordedView) -> str:
    parts = []
    for passage, heading, shown in view_passages(view):
        parts.append(_text(heading, passage.text))
        if passage.kind == "program":
            parts += [_text(name, text) for name, text in program_outputs(passage, shown)]
    found = [view_verdict(view), *([evidence_text(view)] if view.evidence else [])]
    return "".join(parts) + f"<p><strong>{_line(' · '.join(found))}</strong></p>"


def _framed(parts: Iterable[str]) -> str:
    # A notebook would typeset what stands between two dollars.
    return f'<div class="tirjudge tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'


def _text(heading: str, text: str) -> str:
    return f"<p><em>{_line(heading)}</em></p>{_pre(text)}"


def _pre(text: str) -> str:
    more = len(text) - _LONGEST_TEXT
    cut = f"{text[:_LONGEST_TEXT]}\n[{more:,} more characters]" if more > 0 else text
    return f"<pre {_PRE}>{escape(printable_text(cut.rstrip()))}</pre>"


def _line(text: str) -> str:
    return escape(printable(text, _LONGEST_CELL))
