"""The progress of a run: a live line on a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tirjudge.console_text import counted, duration, printable
from tirjudge.generation.endpoint.http import Retry, api_root
from tirjudge.generation.spending import Spending
from tirjudge.judging.batch import Failure, RowJudge
from tirjudge.judging.judge_model import local_note
from tirjudge.judging.options import JudgeOptions
from tirjudge.judging.tally import Tally
from tirjudge.progress import CLEAR, ProgressReporter, on_terminal, say
from tirjudge.records.result_row import ResultRow
from tirjudge.records.text import row_line
from tirjudge_environments import StopReason, Usage

if TYPE_CHECKING:
    from tirjudge.evaluation.judges import JudgesAgreement
    from tirjudge.evaluation.rating_agreement import RatingAgreement
    from tirjudge.evaluation.who_won import WhoWon

SHOWN_FAILURES = 20
SECONDS = 60.0
"""Time between two lines of progress where there is no terminal."""
_LONG = 10.0
"""Seconds after which a request without an answer is shown."""
_REASON = 80
"""Characters of the reason for the last retry."""


class Display:
    """A context manager that shows the progress of a run on standard error.

    On a terminal one line is kept up to date. Elsewhere a line is printed every SECONDS, whether or not a row
    was finished, so that an endpoint that hangs is seen. The first repeated request is reported at once.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        total: int | None,
        failures_file: str | None,
        spending: Spending | None = None,
        row_lines: bool = False,
        remote: bool = True,
    ) -> None:
        """`total` rows are left, if known; `failures_file` lists all failures, if any file does.

        `row_lines` prints a line for each judged row, on a terminal. `remote` says that an endpoint answers:
        of a local model, unanswered calls wait for their turn, which is no alarm.
        """
        self._row_lines, self._remote = row_lines, remote
        self._tally, self._failures_file = tally, failures_file
        self.spending = spending
        """The ledger whose cost and unanswered calls are shown; it may be set after the construction."""
        self.retries = 0
        """Requests to the endpoint that were repeated in this run."""
        self._last_retry = ""
        self._reasons: dict[str, int] = {}
        """Failed rows by their reason."""
        self._console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        self._reporter = ProgressReporter(say, total=total, detail=self._facts)
        self._ended = Event()
        self._ticker = Thread(target=self._tick, name="tirjudge-progress", daemon=True)

    def judged(self, row: Mapping[str, Any]) -> None:
        self._tally.add(row)
        if self._row_lines and on_terminal():
            line = row_line(ResultRow.model_validate(row))
            line.truncate(self._console.width, overflow="ellipsis")
            print(CLEAR, end="", file=sys.stderr, flush=True)
            self._console.print(line)
        self.finished()

    def finished(self) -> None:
        """Count a row that is not a line of a result file."""
        self._reporter.finished()

    def failed(self, failure: Failure) -> None:
        self._tally.failed += 1
        seen = self._reasons.setdefault(failure.reason, 0)
        self._reasons[failure.reason] += 1
        place = self._failures_file
        listed = f"are in {place}" if place else "are not listed"
        if not seen and len(self._reasons) <= SHOWN_FAILURES:
            say(f"{failure.where}: {failure.reason}")
        elif not seen and len(self._reasons) == SHOWN_FAILURES + 1:
            say(f"further failures {listed}")
        elif seen == 1 and len(self._reasons) <= SHOWN_FAILURES:
            # An endpoint that is down fails every row in the same words.
            say(f"{failure.where} and further rows that fail for the same reason {listed}")
        self.finished()

    def retried(self, retry: Retry) -> None:
        """Count a repeated request, and report the first one."""
        self.retries += 1
        self._last_retry = retry.reason
        if self.retries == 1:
            say(f"{retry}; --timeout and --retries set how long it is tried")

    @property
    def seconds(self) -> float:
        return self._reporter.seconds

    def _facts(self) -> str:
        """Return failures, retries, accuracy, cost, and requests that take long."""
        tally, spending, parts = self._tally, self.spending, list[str]()
        if tally.failed:
            parts.append(f"{tally.failed} failed")
        if self.retries:
            repeated = "1 retry" if self.retries == 1 else f"{self.retries} retries"
            parts.append(f"{repeated} ({printable(self._last_retry, _REASON)})")
        if tally.labelled:
            parts.append(f"{tally.credits.total / tally.labelled:.1%} right of {tally.labelled}")
        if spending is not None and spending.cost is not None:
            parts.append(f"cost {spending.cost:.4f}")
        calls, waited = (0, 0.0) if spending is None else spending.waiting
        if self._remote and waited >= _LONG:
            parts.append(f"{calls} unanswered, the first for {duration(waited)}")
        return ", ".join(parts)

    def __enter__(self) -> Self:
        """Start the clock here: loading a model is not judging."""
        self._reporter.restart()
        self._ticker.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._ticker.join()
        if on_terminal():
            print(CLEAR, end="", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._ended.wait(min(1.0, SECONDS) if on_terminal() else SECONDS):
            self._reporter.report()


def introduction(judge: RowJudge, config: JudgeOptions, spending: Spending, *, where: str = "") -> str:
    """Return the first line of a run: the model, and what was not chosen on the command line.

    `where` says what judges if it is not this process.
    """
    note, parts = judge.note, [f"judging with {judge.model}"]
    if config.address_from:
        parts.append(f"at {api_root(config.base_url, query=True).host} ({config.address_from})")
    parts += [where] if where else []
    line = " ".join(parts) + (f", {note}" if note else "")
    if config.untrained == "checks" and not all(local_note(one).model_fields_set for one in config.jurors):
        line += "; an untrained model writes its check before it reads the responses (else --format tir)"
    for price in spending.prices.values():
        if price.source:
            rates = f"{price.prompt:g} and {price.completion:g} USD a million tokens"
            line += f", at {rates} ({price.source})"
    return line


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a run, for the end of its output."""

    tally: Tally
    seconds: float
    """Judging time of this run."""
    model: str
    note: str
    path: str
    """The result file, or `-` for standard output."""
    spending: Spending
    cached: int
    """Calls of this run that the cache answered, in addition to those in `spending`."""
    retries: int
    """Requests of this run that were repeated."""
    won: WhoWon | None = None
    """None if the rows do not name the sources of their responses."""
    rated: RatingAgreement | None = None
    """None if no single response has a label."""
    won_decided: WhoWon | None = None
    """Who won among the rows that programs decided; None if there are none, or no other rows."""
    agreement: tuple[list[str], JudgesAgreement] | None = None
    """The names of the models of a jury, and their agreement; None without a jury that votes."""

    def print(self, *, to_standard_error: bool) -> None:
        """Print a table on a terminal, and plain lines elsewhere."""
        judged, *counts = _counts(self.tally)
        entries = [judged, *(self.rated.lines() if self.rated else ()), *counts]
        entries += [*self._jury(), *(self.won.lines() if self.won else ())]
        if self.won_decided is not None:
            wins = enumerate(self.won_decided.wins())
            entries += [("" if number else "decided", line) for number, line in wins]
        entries += _spent(self.spending, self.cached)
        if self.retries:
            were = "request was" if self.retries == 1 else "requests were"
            entries.append(("retries", f"{self.retries} {were} repeated in this run"))
        entries.append(("seconds", f"{self.seconds:.1f} of judging in this run"))
        entries.append(("model", f"{self.model} ({self.note})" if self.note else self.model))
        if self.path != "-":
            file = shlex.quote(self.path)
            entries.append(("results", self.path))
            commands = [f"tirjudge {name} {file}" for name in ("show", "report", "reproduce")]
            entries.append(("next", "; ".join(commands) if self.tally.judged else f"{commands[0]} --failed"))
        if (counting := self.tally.evidence.counting(self.won, self.won_decided)) and counting.winner:
            entries.append(("winner", counting.winner))
        # Commands are to be copied, so that no long path is cut.
        lines = [(name, printable(value, 1 << 14)) for name, value in entries]
        console = Console(markup=False, highlight=False, stderr=to_standard_error)
        if not console.is_terminal:
            for name, value in lines:
                print(f"{name:<10}{value}", file=console.file)
            return
        table = Table(show_header=False)
        for name, value in lines:
            table.add_row(Text(name), Text(value))
        console.print(table)
        console.print(headline(self.tally), style="bold", soft_wrap=True)

    def _jury(self) -> Iterator[tuple[str, str]]:
        """Yield what each model of a jury did, and how far the models that vote agree."""
        for number, (model, one) in enumerate(self.tally.jury.items()):
            parts = [f"{model}: has the verdict of {one.deciding} of {one.rows} rows"]
            parts += [f"accuracy {one.credits.mean}"] if one.credits else []
            parts += [f"{one.without} without a verdict"] if one.without else []
            usage, cost = self._spent_on(model)
            parts += [f"{usage.prompt_tokens} tokens read, {usage.completion_tokens} written"]
            parts += [] if cost is None else [f"cost {cost:.4f}"]
            yield "" if number else "jury", "; ".join(parts)
        if self.agreement is not None:
            names, found = self.agreement
            yield "agreement", f"{found.alpha.printed('.2f')} is Krippendorff's alpha of {found.alpha.n} rows"
            for one_model, other, equal, kappa in found.pairs:
                pair = f"{names[one_model]} and {names[other]}"
                yield "", f"{pair}: {equal.value:.1%} equal verdicts, kappa {kappa.printed('.2f')}"

    def _spent_on(self, model: str) -> tuple[Usage, float | None]:
        """Return the tokens of a model of a jury, and their cost if there are prices."""
        spending = self.spending
        usage = spending.usages.get(model, Usage())
        return usage, spending.price_of(model).of(usage) if spending.prices else None

    def _jury_record(self) -> dict[str, Any]:
        """Return the models of a jury and their agreement as JSON values; empty for a judge of one model."""
        models = []
        for model, one in self.tally.jury.items():
            mean, (usage, cost) = one.credits.mean if one.credits else None, self._spent_on(model)
            models.append(
                {
                    "model": model,
                    "rows": one.rows,
                    "deciding": one.deciding,
                    "without": one.without,
                    "accuracy": None if mean is None else mean.rate,
                    "interval": None if mean is None else mean.bounds,
                    "prompt_tokens": usage.prompt_tokens,
                    "completion_tokens": usage.completion_tokens,
                    "cost": cost,
                }
            )
        if self.agreement is None:
            return {"jury": models} if models else {}
        from tirjudge.cli.score_output import agreement_record

        names, found = self.agreement
        return {"jury": models, "agreement": agreement_record(found, names)}

    def record(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        tally, spending = self.tally, self.spending
        return {
            "results": self.path,
            "model": self.model,
            "note": self.note,
            "judged": tally.judged,
            "failed": tally.failed,
            "verdicts": tally.verdicts,
            "stops": dict(tally.stops),
            "ties": tally.ties,
            "open": tally.open,
            **({"contested": tally.contested} if tally.contested else {}),
            **({"exposed": tally.exposed} if tally.exposed else {}),
            "evidence": tally.evidence.record(),
            **({} if (checked := tally.checkers.record()) is None else {"checkers": checked}),
            "labelled": tally.labelled,
            "protocol": "verdict",
            "accuracy": tally.accuracy.rate if tally.labelled else None,
            "interval": tally.accuracy.bounds if tally.labelled else None,
            "programs": tally.programs,
            "programs_failed": tally.programs_failed,
            "programs_refused": tally.programs_refused,
            "prompt_tokens": tally.prompt_tokens,
            "completion_tokens": tally.completion_tokens,
            "calls": spending.calls,
            "cached": self.cached,
            "retries": self.retries,
            "cost": spending.cost,
            "seconds": round(self.seconds, 3),
            "model_seconds": round(spending.seconds, 3),
            "queue_seconds": round(spending.queued, 3),
            **self._jury_record(),
            **({} if self.won is None else {"who_won": self.won.record()}),
            **({} if self.rated is None else {"agreement_with_people": self.rated.record()}),
            **({} if self.won_decided is None else {"who_won_decided": self.won_decided.record()}),
        }


def headline(tally: Tally) -> str:
    """Return a run's result in one line."""
    line = f"{tally.verdicts} of {tally.judged} rows have a verdict"
    if ties := tally.ties - tally.evidence.tied:
        line += f", {ties} of them a tie"
    if tally.evidence.tied:
        line += f", {tally.evidence.tied} undecided and counted as ties"
    if tally.open:
        line += f"; {tally.open} left open"
    return f"{line}; accuracy {tally.accuracy}, protocol verdict" if tally.labelled else line


def _counts(tally: Tally) -> list[tuple[str, str]]:
    """Return what there is to say about the rows; counts of nothing are left out."""
    lines = [("judged", f"{counted(tally.judged, 'row')}, {tally.verdicts} with a verdict{_without(tally)}")]
    if tally.failed:
        lines.append(("failed", counted(tally.failed, "row")))
    if tally.open:
        lines.append(
            ("left open", f"{tally.open} of {tally.judged} rows, which are not part of the accuracy")
        )
    if tally.labelled:
        lines.append(
            (
                "accuracy",
                f"{tally.accuracy}, protocol verdict (a tie counts in part, a missing verdict as wrong)",
            )
        )
    lines += tally.evidence.entries()
    lines += tally.checkers.lines()
    if ties := tally.ties - tally.evidence.tied:
        lines.append(("ties", f"{ties}{' more' if tally.evidence.tied else ''}"))
    if tally.contested:
        lines.append(("contested", f"{counted(tally.contested, 'row')} with two verdicts in one turn"))
    if tally.exposed:
        rows = counted(tally.exposed, "row")
        lines.append(("exposed", f"{rows} with a tag in a shown text, and the boundary is off"))
    if tally.programs or tally.programs_refused:
        lines.append(("programs", _programs(tally)))
    if tally.prompt_tokens or tally.completion_tokens:
        lines.append(("tokens", f"{tally.prompt_tokens} read, {tally.completion_tokens} written"))
    return lines


def _spent(spending: Spending, cached: int) -> list[tuple[str, str]]:
    """Return the cost of all runs into this file.

    It exceeds the cost of the file's verdicts if rows failed, and is below it if the cache answered.
    """
    found = [f"{spending.calls}, {spending.times}"] if spending.calls else []
    found += [f"{cached} {'more ' * bool(found)}from the cache"] if cached else []
    lines = [("calls", ", ".join(found))] if found else []
    if spending.cost is not None:
        usage = spending.usage
        held = f" ({usage.cached_tokens} of them from the provider's cache)" if usage.cached_tokens else ""
        tokens = f"{usage.prompt_tokens} tokens read{held}, {usage.completion_tokens} written"
        source = ", ".join(price.source for price in spending.prices.values() if price.source)
        lines.append(
            ("cost", f"{spending.cost:.4f} for {tokens}" + (f", in USD ({source})" if source else ""))
        )
    return lines


def _without(tally: Tally) -> str:
    apart = (StopReason.VERDICT, StopReason.ABSTAINED)
    others = [f"{count} {stop}" for stop, count in tally.stops.most_common() if stop not in apart]
    return f" ({', '.join(others)})" if others else ""


def _programs(tally: Tally) -> str:
    each = f"{tally.programs / tally.judged:.2f} a row" if tally.judged else "none"
    refused = f", {tally.programs_refused} refused" if tally.programs_refused else ""
    return f"{tally.programs} run ({each}), {tally.programs_failed} failed{refused}"
