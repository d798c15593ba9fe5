"""`tirjudge show`: rows of a result file, with everything that led to their verdicts."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.output import examples, one_line_errors, say
from tirjudge.cli.row_text import print_row, row_line
from tirjudge.cli.tables import console
from tirjudge.console_text import printable
from tirjudge.judging.result_rows import RecordedRow, is_truncated, read_result_rows
from tirjudge.storage.result_file import failures_path
from tirjudge.storage.run_folder import read_lines

_LONGEST_REASON = 1000
_Found = tuple[RecordedRow, Mapping[str, Any]]


@examples(
    "tirjudge show rows.verdicts.jsonl",
    "tirjudge show rows.verdicts.jsonl line-7",
    "tirjudge show rows.verdicts.jsonl --wrong --random 3 | less -R",
)
def show(
    file: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Result file of judge, eval or bon.", show_default=False)
    ],
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Rows to show.", show_default=False)
    ] = None,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="Rows whose verdict is not the label's.", rich_help_panel="Rows")
    ] = False,
    flipped: Annotated[
        bool,
        typer.Option(
            "--flipped", help="Rows whose verdict changes with the order shown.", rich_help_panel="Rows"
        ),
    ] = False,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed",
            help="Rows without a verdict, and the rows in RESULTS.failed.jsonl.",
            rich_help_panel="Rows",
        ),
    ] = False,
    program_failed: Annotated[
        bool,
        typer.Option("--program-failed", help="Rows with a program that failed.", rich_help_panel="Rows"),
    ] = False,
    random_rows: Annotated[
        int | None,
        typer.Option("--random", min=1, metavar="N", help="N rows, drawn at random.", rich_help_panel="Rows"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of --random.", rich_help_panel="Rows")] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The first N rows.", rich_help_panel="Rows")
    ] = None,
    brief: Annotated[
        bool | None,
        typer.Option(
            "--brief/--full",
            help="One line per row.  [default: full, and brief if no row is selected]",
            rich_help_panel="Output",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the rows as JSON lines.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Show rows of a result file: the responses, the dialogue, programs, outputs and the reward.

    Options that select rows can be combined. Without any of them, every row is one line. Exit codes: 0, also
    if no row matches; 2 for an unknown ID and for a file that is no result file.
    """
    with one_line_errors("show"):
        wanted = [wrong, flipped, failed, program_failed, random_rows, limit, ids]
        brief = not any(wanted) if brief is None else brief
        selection = _Selection(file, set(ids or ()), wrong, flipped, failed, program_failed)
        rows: Iterator[_Found] = selection.rows()
        if random_rows is not None:
            rows = _drawn(rows, random_rows, seed)
        terminal, shown = console(), 0
        for row, fields in islice(rows, limit):
            shown += 1
            if as_json:
                # ASCII: JSON leaves some control characters of a terminal as they are.
                print(json.dumps(fields))
            elif brief:
                line = row_line(row)
                line.truncate(terminal.width, overflow="ellipsis")
                terminal.print(line, soft_wrap=True)
            else:
                print_row(terminal, row)
        selection.report(shown, as_json=as_json)


def _drawn(rows: Iterator[_Found], count: int, seed: int) -> Iterator[_Found]:
    """Yield rows drawn at random, in the order of the file; no more than `count` are kept in memory."""
    draw = random.Random(seed)
    keyed = ((draw.random(), position, found) for position, found in enumerate(rows))
    for _, _, found in sorted(heapq.nlargest(count, keyed), key=lambda one: one[1]):
        yield found


class _Selection:
    """The rows of a file that fit all options, and what is said about the others at the end."""

    def __init__(
        self, file: Path, ids: set[str], wrong: bool, flipped: bool, failed: bool, program_failed: bool
    ) -> None:
        self._file, self._ids = file, ids
        self._wrong, self._flipped = wrong, flipped
        self._failed, self._program_failed = failed, program_failed
        self._total = 0
        self._others: set[str] = set()
        self._missing = set(ids)
        self._read = False
        """True once the whole file was read; --limit may end it before."""

    def rows(self) -> Iterator[_Found]:
        for row, fields in read_result_rows(self._file):
            self._total += 1
            self._missing.discard(row.id)
            if self._missing:
                self._others.add(row.id)
            if self._fits(row):
                yield row, fields
        self._read = True

    def _fits(self, row: RecordedRow) -> bool:
        return (
            (not self._ids or row.id in self._ids)
            and (not self._wrong or (row.correct is not None and row.correct < 1))
            and (not self._flipped or row.flipped)
            and (not self._failed or row.stop != "verdict")
            and (not self._program_failed or row.programs_failed > 0)
        )

    def report(self, shown: int, *, as_json: bool) -> None:
        """Print the rows without a result, and what was not found. Raises ValueError for an unknown id."""
        for failure in read_lines(failures_path(self._file)):
            id, where = str(failure.get("id")), failure.get("where")
            if (self._failed and not self._ids) or id in self._missing:
                self._missing.discard(id)
                shown += 1
                if as_json:
                    print(json.dumps(failure))
                else:
                    print(printable(f"{where}: no result: {failure.get('reason')}", _LONGEST_REASON))
        if is_truncated(self._file):
            say(f"tirjudge show: {self._file} ends in the middle of a row, which is left out")
        if self._missing and self._read:
            unknown = min(self._missing)
            close = get_close_matches(unknown, sorted(self._others), n=3)
            hint = f"; the closest ids are {', '.join(close)}" if close else ""
            raise ValueError(f"{self._file} has no row {unknown!r} among its {self._total}{hint}")
        if not shown:
            say(f"tirjudge show: none of the {self._total} rows of {self._file} matches")
