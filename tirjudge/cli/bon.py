"""`tirjudge bon`: best-of-N selection over rows, by a judge or without one."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.options import RUNNER, RowsOptions, RunOptions, takes_options
from tirjudge.cli.output import (
    INTERRUPTED,
    SOME_FAILED,
    examples,
    option,
    output_file,
    refuse_input,
    say,
    stop,
)
from tirjudge.cli.paper_tables import TableFormat, print_table, selection_rows
from tirjudge.cli.run_display import Display, introduction
from tirjudge.cli.score_options import TableOption, one_output
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.data.sources import RowSource
from tirjudge.generation.spending import CostReached, Spending
from tirjudge.judging.batch import EngineRowJudge, TooManyFailures
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judge_model import local_note, local_weights, most_tokens, undecided_verdicts
from tirjudge.judging.options import OF_RUNS
from tirjudge.judging.tally import Tally
from tirjudge.progress import on_terminal
from tirjudge.selection.best_of_n import BestOfN, Judgments, Method, Picked, SolvedTally, open_method
from tirjudge.selection.grading import CheckName, Grades, questions, unpacked
from tirjudge.selection.tournaments import BEST_OF_N
from tirjudge.statistics.clusters import in_clusters
from tirjudge.storage.json_lines import JsonLines, read_lines
from tirjudge.storage.kept_files import keep_prepared
from tirjudge.storage.result_file import ResultFile
from tirjudge_environments.orders import letter
from tirjudge_environments.tasks import Columns
from tirjudge_sandbox.prepared import prepared_files

_SHOWN_PICKS, _LONGEST_PICK = 20, 200
"""Rows whose picks are printed, and characters of such a line."""
DEFAULT_METHODS = ("pointwise", "pairwise", "listwise")


@examples(
    "tirjudge bon candidates.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge bon candidates.jsonl --no-judge --n 8",
)
@takes_options("bon", without=(*OF_RUNS, *RUNNER))
def bon(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows with candidates, in our columns or JETTS's; a hub id OWNER/NAME; - is standard input.",
        ),
    ],
    output: Annotated[
        Path | None, option("Output", "File of judgments.  [default: NAME.bon.jsonl in this folder]")
    ] = None,
    as_json: Annotated[bool, option("Output", "Print the result as JSON.", "--json")] = False,
    table: TableOption = None,
    method: Annotated[
        list[str] | None,
        option(
            "Judging",
            f"Selection method: {', '.join(BEST_OF_N)}. Repeatable.  [default: the first three]",
            metavar="METHOD",
        ),
    ] = None,
    no_judge: Annotated[
        bool, option("Judging", "Only pass@1, majority vote and the oracle.", "--no-judge")
    ] = False,
    group_size: Annotated[
        int, option("Judging", "Candidates in one listwise prompt.", min=2, hidden=True)
    ] = 4,
    check: Annotated[
        CheckName,
        option(
            "Rows",
            "Check that decides which candidates solve a row; auto: by the row's columns, else none.",
            hidden=True,
        ),
    ] = "auto",
    n: Annotated[
        int | None, option("Rows", "Use only the first N candidates of each row.", min=1, hidden=True)
    ] = None,
    *,
    reading: RowsOptions,
    options: RunOptions,
) -> None:
    """Let a judge select the best of N candidates. The same command resumes an interrupted run.

    Rows with a label, or another column to check by, also score the selection. Exit codes: 0 all rows done,
    1 some failed or no judgment got a verdict, 2 usage, 130 interrupted.
    """
    named = [*(method or ()), *(name for name in DEFAULT_METHODS if getattr(options, name))]
    one_output(table, as_json)
    if no_judge and named:
        raise ValueError("--no-judge and a method exclude each other")
    if options.runner != "local":
        raise ValueError("tirjudge bon judges on this machine only: leave out runner")
    names = () if no_judge else dict.fromkeys(named or DEFAULT_METHODS)
    if names:
        options.check()
    columns, meaning, target = reading.columns, reading.meaning, output_file(output, file, "bon")
    # Several candidates often are identical, and any of them is as good.
    rows = InspectedRows(
        reading.open(file), columns, meaning, unpack=unpacked, alike=False, empty_loses=options.empty_loses
    )
    refuse_input(target, rows)
    for note in rows.inspect():
        say(note)
    run = BonRun(
        rows=rows,
        output=target,
        options=options.resuming(target),
        methods={name: open_method(name, group_size=group_size, seed=options.seed) for name in names},
        check=check,
        columns=columns,
        labels=meaning,
        most=n,
        as_json=as_json,
        table=table,
    )
    done = run.run()
    for note in rows.left():
        say(note)
    raise typer.Exit(0 if done else SOME_FAILED)


@dataclass(frozen=True, slots=True)
class _Judge:
    """The open files and meters of a run with a judge."""

    results: ResultFile
    judgments: Judgments
    spending: Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class BonRun:
    """One start of a run; the same command starts again where this one stopped."""

    rows: RowSource
    output: Path
    """File of judgments; grades, picks, calls, failures and settings are in files next to it."""
    options: RunOptions
    methods: Mapping[str, Method]
    """Methods by name; without any no judge is opened."""
    check: CheckName
    columns: Columns
    labels: Mapping[str, str] | None
    most: int | None
    """Candidates of each row that are used; None is all."""
    as_json: bool = False
    """Print the result as JSON."""
    table: TableFormat | None = None
    """Print the result as a table for a paper, and nothing else."""

    def run(self) -> bool:
        """Select from every question and print the table; return whether all questions are done."""
        try:
            return asyncio.run(self._run())
        except KeyboardInterrupt:
            reason = f"interrupted; the same command resumes, its judgments are in {self.output}"
            stop("bon", reason, INTERRUPTED)

    async def _run(self) -> bool:
        async with AsyncExitStack() as stack:
            count, limit = self.rows.count(), self.options.limit
            total = None if count is None else min(count, limit or count)
            # The judge lists its failures; grades alone are counted.
            seen, failures_file = Tally(), str(self._companion("failed")) if self.methods else None
            display = Display(seen, total=total, failures_file=failures_file)
            judge = await stack.enter_async_context(self._judge(display)) if self.methods else None
            weak = self.options.allow_weak_isolation
            grades = await stack.enter_async_context(
                Grades(self._companion("grades"), allow_weak_isolation=weak)
            )
            picks = stack.enter_context(JsonLines(self._companion("picks"), replace=True))
            picks.append()  # none so far: earlier picks are chosen again
            tally = SolvedTally()
            with display:
                completed = await self._select(judge, grades, picks, tally, display)
            self._print(tally, seen.failed, judge, display)
            return completed and not seen.failed and _has_verdicts(judge)

    def _print(self, tally: SolvedTally, failed: int, judge: _Judge | None, display: Display) -> None:
        picks = str(self._companion("picks"))
        if self.table:
            print_table(selection_rows(tally, self.output.name), self.table)
            return
        if self.as_json:
            record = _solved_record(tally, failed) | {"retries": display.retries}
            if judge is not None:
                record |= {"calls": judge.spending.calls, "cost": judge.spending.cost}
                record |= {"evidence": _judged(judge).evidence.record()}
            record |= {"picks": picks}
            print(json.dumps(record, indent=2))
            return
        _print_solved(tally, failed)
        if judge is not None:
            _print_spent(judge, display.retries)
        print(f"seconds   {display.seconds:.1f} of this run")
        print(f"picks     {printable(picks)}")
        if self.methods:
            _print_picks(self._companion("picks"))

    async def _select(
        self, judge: _Judge | None, grades: Grades, picks: JsonLines, tally: SolvedTally, display: Display
    ) -> bool:
        """Return whether the run reached its end."""
        best_of_n = BestOfN(
            grades=grades,
            judgments=judge.judgments if judge else None,
            methods=self.methods,
            truncate=self.options.truncate,
            thinking=self.options.judges_thinking,
            at_once=self.options.concurrency,
            give_up_after=self.options.give_up_after,
        )
        rows = islice(self.rows, self.options.limit)
        candidate_sets = questions(
            rows, check=self.check, columns=self.columns, labels=self.labels, most=self.most
        )
        try:
            async with aclosing(best_of_n.run(candidate_sets)) as finished:
                async for one in finished:
                    if isinstance(one, Picked):
                        tally.add(one)
                        picks.append(one.record)
                        display.finished()
                        continue
                    if judge is not None:
                        judge.results.append_failure(asdict(one))
                    display.failed(one)
        except (CostReached, TooManyFailures) as error:
            say(f"stopped: {error}; the same command resumes")
            return False
        return True

    @asynccontextmanager
    async def _judge(self, display: Display) -> AsyncIterator[_Judge]:
        if not on_terminal():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        options = self.options
        weights = local_weights(options)
        with (
            ResultFile(
                self.output, self._settings(weights), declared_by=type(options), overwrite=options.overwrite
            ) as results,
            Spending(
                self._companion("calls"),
                prices=options.prices(),
                limit=options.max_cost,
                overwrite=options.overwrite,
            ) as spending,
        ):
            display.spending = spending
            if options.prepare and options.texts:
                keep_prepared(self.output, prepared_files(options.prepare))
            async with JudgeEngine(
                options, spending=spending, weights=weights, on_retry=display.retried
            ) as engine:
                say(introduction(EngineRowJudge(engine), options, spending))
                yield _Judge(results, Judgments(engine, results, texts=self.options.texts), spending)

    def _settings(self, weights: str) -> dict[str, Any]:
        """Return the settings of all judgments; not the methods, since methods share judgments."""
        return {
            **self.options.settings(),
            "truncate": self.options.truncate,
            "max_tokens": most_tokens(self.options),
            "undecided": undecided_verdicts(self.options, map(local_note, self.options.jurors)),
            "weights": weights,
            "benchmark": "best-of-n",
        }

    def _companion(self, name: str) -> Path:
        return self.output.with_name(f"{self.output.name}.{name}.jsonl")


def _solved_record(tally: SolvedTally, failed: int) -> dict[str, Any]:
    lines = {
        line.name: {
            "solved": None if line.solved is None else line.solved.rate,
            "interval": None if line.solved is None else line.solved.bounds,
            "judgments": line.judgments,
            "undecided": line.undecided,
        }
        for line in tally.lines
    }
    return {"rows": tally.questions, "failed": failed, "graded": tally.graded, "select_by": lines}


def _print_solved(tally: SolvedTally, failed: int) -> None:
    """Print plain lines, which programs can read too."""
    each = tally.candidates / tally.questions if tally.questions else 0.0
    graded = "" if tally.graded == tally.questions else f", {tally.graded} with a label or check"
    print(f"rows      {tally.questions} of {each:.1f} candidates each, {failed} failed{graded}")
    if not tally.graded:
        print(f"{'select by':<14}{'judgments':>9}{'undecided':>11}")
        for line in tally.lines:
            print(f"{line.name:<14}{line.judgments:>9}{line.undecided:>11}")
        return
    print(f"{'select by':<14}{'solved':>8}  {'of all, 95 % interval':<26}{'judgments':>9}{'undecided':>11}")
    shown = None
    for line in tally.lines:
        if line.solved is not None:
            shown = line.solved
            solved = f"{line.solved.successes:.2f}".rstrip("0").removesuffix(".")
            rate = str(line.solved).partition(", n")[0]
            print(f"{line.name:<14}{solved:>8}  {rate:<26}{line.judgments:>9}{line.undecided:>11}")
    if shown is not None and shown.clusters is not None:
        fault = f" (no interval: {shown.fault})" if shown.fault else ""
        print(f"prompts   rows{in_clusters(shown.clusters)}, which intervals take as units{fault}")


def _print_picks(path: Path) -> None:
    """Print how often each source was picked, and the picks of the first rows; the rest are in the file.

    A pick is undecided if no judgment of its row decided anything, so that majority or lots have picked.
    """
    picked: dict[str, Counter[str]] = {}
    for number, pick in enumerate(read_lines(path)):
        named = []
        for method, one in pick["selections"].items():
            source, undecided = one.get("source", ""), 0 < one["judgments"] == one["undecided"]
            counted_for = "undecided" if source and undecided else source
            picked.setdefault(method, Counter())[counted_for] += 1
            words = [method, letter(one["choice"]), source, "(undecided)" if undecided else ""]
            named.append(" ".join(filter(None, words)))
        if number < _SHOWN_PICKS:
            print(printable(f"  {pick['id']}: {', '.join(named)}", _LONGEST_PICK))
    for method, sources in picked.items():
        counts = ", ".join(f"{source} {count}" for source, count in sources.most_common() if source)
        if counts:
            print(printable(f"{method} picked {counts}"))


def _has_verdicts(judge: _Judge | None) -> bool:
    """Return False, and say so, if the judge was asked and gave no verdict: then chance has picked."""
    judged = _judged(judge)
    if not judged.judged or judged.verdicts:
        return True
    ((end, _),) = judged.stops.most_common(1)
    say(f"tirjudge bon: no judgment got a verdict, and most ended by {end}: no judge has made these picks")
    return False


def _judged(judge: _Judge | None) -> Tally:
    """Count the judgments of all runs into the file."""
    judged = Tally()
    for row in judge.results.rows() if judge is not None else ():
        judged.add(row)
    return judged


def _print_spent(judge: _Judge, retries: int) -> None:
    """Print the totals of all runs into the file."""
    judged = _judged(judge)
    spending = judge.spending
    print(f"judged    {judged.judged} times in all runs, {judged.verdicts} with a verdict")
    for heading, line in judged.evidence.entries():
        print(f"{heading:<10}{printable(line)}")
    print(f"programs  {judged.programs} run, {judged.programs_failed} failed")
    print(f"tokens    {judged.prompt_tokens} read, {judged.completion_tokens} written")
    if spending.calls:
        print(f"calls     {spending.calls}, {spending.times}")
    if retries:
        print(f"retries   {retries} requests were repeated in this run")
    if spending.cost is not None:
        print(f"cost      {spending.cost:.4f}")
