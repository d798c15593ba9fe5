"""The progress of a run: a live line on a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tirjudge.cli.errors import say
from tirjudge.cli.row_text import row_line
from tirjudge.console_text import Interval, printable
from tirjudge.generation.spending import Spending
from tirjudge.judging.batch import Failure, Tally
from tirjudge.judging.result_rows import RecordedRow

SHOWN_FAILURES = 20


def say_failure(failure: Failure, number: int) -> None:
    """Print the first SHOWN_FAILURES failures, one line each; `number` counts from 1."""
    if number <= SHOWN_FAILURES:
        say(f"{failure.where}: {failure.reason}")


class Display:
    """A context manager that shows the progress of a run on standard error.

    `total` is the number of rows left, or None if it is unknown; `failures_file` lists all failures.
    `row_lines` prints a line for each judged row, on a terminal.
    """

    def __init__(
        self, tally: Tally, *, total: int | None, failures_file: str, row_lines: bool = False
    ) -> None:
        self._row_lines = row_lines
        self._tally, self._total, self._failures_file = tally, total, failures_file
        self._done = 0
        self._started, self._interval = time.monotonic(), Interval()
        self._console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.completed:.0f} of {task.fields[rows]} rows", markup=False),
            BarColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        rows = "?" if total is None else str(total)
        self._bar = self._progress.add_task("", total=total, rows=rows, rate="")

    def judged(self, row: Mapping[str, Any]) -> None:
        self._tally.add(row)
        if self._row_lines and self._console.is_terminal:
            line = row_line(RecordedRow.model_validate(row))
            line.truncate(self._console.width, overflow="ellipsis")
            self._console.print(line)
        self._advance()

    def failed(self, failure: Failure) -> None:
        self._tally.failed += 1
        if self._tally.failed <= SHOWN_FAILURES:
            self.say(f"{failure.where}: {failure.reason}")
        if self._tally.failed == SHOWN_FAILURES + 1:
            self.say(f"further failures are in {self._failures_file}")
        self._advance()

    def skipped(self) -> None:
        """Do nothing: a row of an earlier run is not progress of this one."""

    def say(self, text: str) -> None:
        """Print a line of untrusted text."""
        self._console.print(Text(printable(text)))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        """Start the clock here: loading a model is not judging."""
        self._started, self._interval = time.monotonic(), Interval()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def _advance(self) -> None:
        self._done += 1
        rate = f"{self._done / max(self.seconds, 1e-9):.2f} rows/s"
        self._progress.update(self._bar, completed=self._done, rate=rate)
        if not self._console.is_terminal and self._interval.over():
            self._console.print(self._plain_line(rate))

    def _plain_line(self, rate: str) -> str:
        if self._total is None:
            return f"{self._done} rows, {rate}"
        left = (self._total - self._done) * self.seconds / self._done
        return f"{self._done} of {self._total} rows, {rate}, {_duration(left)} left"


def print_summary(
    tally: Tally, *, seconds: float, model: str, note: str, path: str, spending: Spending, cached: int
) -> None:
    """Print the summary on standard output: a table on a terminal, plain lines elsewhere.

    `cached` calls of this run were answered from the cache, in addition to those in `spending`.
    """
    entries = [*_counts(tally), *_spent(spending, cached)]
    entries.append(("seconds", f"{seconds:.1f} of judging in this run"))
    entries.append(("model", f"{model} ({note})" if note else model))
    entries.append(("results", path))
    lines = [(name, printable(value)) for name, value in entries]
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        for name, value in lines:
            print(f"{name:<10}{value}")
        return
    table = Table(show_header=False)
    for name, value in lines:
        table.add_row(Text(name), Text(value))
    console.print(table)
    console.print(headline(tally), style="bold")


def headline(tally: Tally) -> str:
    """Return a run's result in one line."""
    line = f"{tally.verdicts} of {tally.judged} rows have a verdict"
    if tally.ties:
        line += f", {tally.ties} of them a tie"
    return f"{line}; accuracy {tally.accuracy}" if tally.labelled else line


def summary_record(
    tally: Tally, *, seconds: float, model: str, note: str, path: str, spending: Spending, cached: int
) -> dict[str, Any]:
    """Return the summary as JSON; arguments as for `print_summary`."""
    return {
        "results": path,
        "model": model,
        "note": note,
        "judged": tally.judged,
        "failed": tally.failed,
        "verdicts": tally.verdicts,
        "stops": dict(tally.stops),
        "ties": tally.ties,
        "labelled": tally.labelled,
        "accuracy": tally.accuracy.rate if tally.labelled else None,
        "interval": list(tally.accuracy.interval) if tally.labelled else None,
        "programs": tally.programs,
        "programs_failed": tally.programs_failed,
        "programs_refused": tally.programs_refused,
        "prompt_tokens": tally.prompt_tokens,
        "completion_tokens": tally.completion_tokens,
        "calls": spending.calls,
        "cached": cached,
        "cost": spending.cost,
        "seconds": round(seconds, 3),
    }


def _counts(tally: Tally) -> list[tuple[str, str]]:
    lines = [("judged", f"{tally.judged} rows, {tally.verdicts} with a verdict{_without(tally)}")]
    lines.append(("failed", f"{tally.failed} rows"))
    if tally.labelled:
        lines.append(("accuracy", f"{tally.accuracy} (ties are shared, a missing verdict is wrong)"))
    lines.append(("ties", str(tally.ties)))
    lines.append(("programs", _programs(tally)))
    lines.append(("tokens", f"{tally.prompt_tokens} read, {tally.completion_tokens} written"))
    return lines


def _spent(spending: Spending, cached: int) -> list[tuple[str, str]]:
    """Return the cost of all runs into this file.

    It exceeds the cost of the file's verdicts if rows failed, and is below it if the cache answered.
    """
    kept = f", {cached} more from the cache" if cached else ""
    lines = [("calls", f"{spending.calls} in {spending.seconds:.1f} s of the model's time{kept}")]
    if spending.cost is not None:
        usage = spending.usage
        tokens = f"{usage.prompt_tokens} tokens read, {usage.completion_tokens} written"
        lines.append(("cost", f"{spending.cost:.4f} for {tokens}"))
    return lines


def _without(tally: Tally) -> str:
    others = [f"{count} {stop}" for stop, count in tally.stops.most_common() if stop != "verdict"]
    return f" ({', '.join(others)})" if others else ""


def _programs(tally: Tally) -> str:
    each = f"{tally.programs / tally.judged:.2f} a row" if tally.judged else "none"
    return f"{tally.programs} run ({each}), {tally.programs_failed} failed, {tally.programs_refused} refused"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
