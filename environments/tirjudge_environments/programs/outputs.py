"""Rendering of executions as the text that a model sees."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from signal import Signals

from tirjudge_environments.quoting import cut_middle, opens_or_closes_a_fence, quote_lines
from tirjudge_environments.types import Refused
from tirjudge_sandbox import Execution, Status

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_COUNT_LINE = re.compile(rf"[A-Z]+ ({_NUMBER.pattern})(?: of [0-9]+)?")
_STOPPED = {
    Status.WALL_LIMIT: "TimeoutError: the {} was stopped at its wall clock limit",
    Status.CPU_LIMIT: "TimeoutError: the {} was stopped at its CPU time limit",
    Status.MEMORY_LIMIT: "MemoryError: the {} was stopped at its memory limit",
    Status.OUTPUT_LIMIT: "OSError: the {} was stopped at its output limit",
}


_MOST_CHARACTERS = 100_000
"""Characters of a program that is read for `replacement_note`."""

UNFINISHED = "\nWhat it had printed by then, unfinished:\n"
"""Between the reason why a program was stopped, or crashed, and its output up to there."""


def output_text(outcome: Execution | Refused, limit: int, *, called: bool = False) -> str:
    """Return a program's output, or its error in one line (TIR section 4.2, Error Message Processing).

    After the line about a program that was stopped, or that a signal ended, comes what it had printed, marked
    as unfinished. For a `called` tool other than Python, return the answer or the whole error. A text of more
    than `limit` characters is cut in the middle, with a count of omitted characters. Raises ValueError for an
    execution whose sandbox failed, which is not an output of the program.
    """
    if isinstance(outcome, Refused):
        return outcome.reason
    if outcome.status is Status.OK:
        return cut_middle(outcome.stdout.rstrip(), limit) or "(no output)"
    if called and outcome.status is Status.ERROR:
        return cut_middle(outcome.stderr.strip(), limit) or "(an error without a message)"
    line = error_line(outcome, limit, called=called)
    printed = "" if called or outcome.status is Status.ERROR else outcome.stdout.rstrip()
    return f"{line}{UNFINISHED}{cut_middle(printed, max(1, limit - len(line)))}" if printed else line


def error_line(outcome: Execution, limit: int, *, called: bool = False) -> str:
    """Return in one line how a program failed, cut as in `output_text`, which has the other errors."""
    if outcome.status is Status.SANDBOX_FAILED:
        raise ValueError("a failed sandbox is never shown as a program's output")
    if outcome.status in _STOPPED:
        line = _STOPPED[outcome.status].format("call" if called else "program")
        if outcome.status is Status.OUTPUT_LIMIT and outcome.cut_bytes:
            # The sandboxes of other packages may not say how much was cut.
            line += f" ({outcome.kept_bytes} bytes kept, {outcome.cut_bytes} bytes cut)"
    elif outcome.status is Status.SIGNAL:
        line = f"the program was ended by {_signal_name(outcome.signal)}"
    else:
        line = outcome.stderr.rstrip().rsplit("\n", 1)[-1].strip() or f"SystemExit: {outcome.exit_code}"
    return cut_middle(line, limit)


def _signal_name(number: int | None) -> str:
    try:
        return Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def most_counted(output: str, responses: int) -> int | None:
    """Return the position of the response for which a program printed the highest count.

    None for equal highest counts, or without one count for each response, see `printed_counts`. This reading
    of outputs only describes runs: no reward depends on the result.
    """
    counts = printed_counts(output, responses)
    if counts is None or counts.count(max(counts)) != 1:
        return None
    return counts.index(max(counts))


def printed_counts(output: str, responses: int) -> list[float] | None:
    """Return the count that a program printed for each response; None if there is not one for each.

    The counts are the numbers of lines such as `B 1 of 2`, or else all numbers of the last line.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    counts = [float(found[1]) for found in map(_COUNT_LINE.fullmatch, lines) if found]
    if not counts and lines:
        counts = [float(number) for number in _NUMBER.findall(lines[-1])]
    return counts if counts and len(counts) == responses else None


def quote_fences(text: str) -> str:
    """Quote every line that could open or close a fence, so that no output ends the fence around it."""
    return quote_lines(text, opens_or_closes_a_fence)


def replacement_note(source: str, variables: Iterable[str]) -> str:
    """Return the note that a judge reads if its program gives a variable another value; empty if it does not.

    Only a value without names counts, such as a copied text; an empty list is there to be filled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source if len(source) <= _MOST_CHARACTERS else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    assigned: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for side in (*targets, node.value) for part in ast.walk(side)]
            names = [part for part in parts if isinstance(part, ast.Name)]
            is_empty = isinstance(node.value, ast.List) and not node.value.elts
            if not is_empty and all(isinstance(one.ctx, ast.Store) for one in names):
                assigned.update(one.id for one in names)
    replaced = ", ".join(f"`{one}`" for one in variables if one in assigned)
    note = f"\nNote: {replaced} had the given text already. This program replaced it, so that its output "
    return f"{note}says nothing about the given text. Use the variables as they are." if replaced else ""
