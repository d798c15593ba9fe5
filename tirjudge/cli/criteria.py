"""`tirjudge criteria`, which proposes criteria for labelled rows, and keeps those that agree with labels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
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
from tirjudge.console_text import printable
from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import RowSource
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached, Spending
from tirjudge.judging.batch import BatchRunner, Failure, Plan, TooManyFailures, Unjudged, Work
from tirjudge.judging.criteria import ProposedCriteria, propose_criteria
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judge_model import local_weights, most_tokens
from tirjudge.judging.meta_judge import rejects_the_question
from tirjudge.judging.options import OF_RUNS
from tirjudge.progress import ProgressReporter
from tirjudge.storage.result_file import RunFile
from tirjudge_environments import JudgeTask
from tirjudge_environments.tasks import RowError


@examples(
    "tirjudge criteria rows.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge criteria rows.jsonl --model my-model --most 5 --output rubrics.jsonl",
)
@takes_options("criteria", without=(*OF_RUNS, *RUNNER, "texts", "criteria_per_call"))
def criteria(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Labelled rows with two or more responses, as for tirjudge judge."
        ),
    ],
    output: Annotated[
        Path | None,
        option("Output", "Rows with their criteria.  [default: NAME.criteria.jsonl in this folder]"),
    ] = None,
    most: Annotated[int, option("Judging", "Criteria proposed for a row.", min=1, metavar="N")] = 8,
    *,
    reading: RowsOptions,
    options: RunOptions,
) -> None:
    """Propose criteria for labelled rows, and keep those whose verdicts agree with the labels.

    The model contrasts the better response with up to three others. Then it judges the row by each criterion,
    in both orders. The rows are written with the criteria that agree; the same command resumes.
    Exit codes: 0 every row was read, 1 some rows failed or nothing was proposed, 2 usage or no rows, 130
    interrupted.
    """
    plan = options.plan(reading.columns, reading.meaning)
    target = output_file(output, file, "criteria")
    options = options.model_copy(update={"order": options.order or "both"}).resuming(target)
    options.check(plan.kind)
    rows = reading.open(file)
    refuse_input(target, rows)
    calls = target.with_name(f"{target.name}.calls.jsonl")
    prices, weights = options.prices(), local_weights(options)
    settings = {
        **options.settings(),
        "format": options.format or plan.kind,
        "columns": plan.columns.model_dump(exclude_unset=True),
        "labels": plan.labels,
        "max_tokens": most_tokens(options),
        "weights": weights,
        "most": most,
    }
    with ExitStack() as stack:
        # Early versions recorded no settings of a file of criteria, but its calls.
        opened = partial(RunFile, declared_by=type(options), command="criteria", companion=calls)
        lines = stack.enter_context(opened(target, settings, overwrite=options.overwrite))
        spending = stack.enter_context(
            Spending(calls, prices=prices, limit=options.max_cost, overwrite=options.overwrite)
        )
        run = _Run(options, plan, most, lines, {str(row["id"]) for row in lines.rows() if "id" in row})
        try:
            completed = asyncio.run(run.over(rows, spending, weights))
        except KeyboardInterrupt:
            stop("criteria", "interrupted; the same command resumes", INTERRUPTED)
    read = run.judged_rows + run.failed_rows + run.before
    print(
        f"rows      {read}, {run.with_criteria} with criteria, {run.failed_rows} failed, {run.before} before"
    )
    print(f"criteria  {run.proposed} proposed, {run.kept} kept, {run.proposed - run.kept} rejected")
    print(f"written   {printable(str(target))}")
    proposed_nothing = bool(run.judged_rows) and not run.proposed
    if proposed_nothing:
        say("tirjudge criteria: the model proposed no criterion for any row: choose another --model")
    raise typer.Exit(0 if completed and not run.failed_rows and not proposed_nothing else SOME_FAILED)


@dataclass(slots=True)
class _Run:
    """One pass over the rows, and the sink of its runner."""

    options: RunOptions
    plan: Plan
    most: int
    lines: RunFile
    done: set[Any]
    """Ids of the rows that an earlier start wrote."""
    progress: ProgressReporter = field(default_factory=lambda: ProgressReporter(say))
    before: int = 0
    judged_rows: int = 0
    failed_rows: int = 0
    with_criteria: int = 0
    proposed: int = 0
    kept: int = 0
    _given: dict[str, Row] = field(default_factory=dict)
    """The rows that are being judged, by where they are."""
    _seen: dict[str, str] = field(default_factory=dict)
    """Id to where its row is."""

    async def over(self, rows: RowSource, spending: Spending, weights: str) -> bool:
        """Return True if the run reached the end of the rows."""
        async with JudgeEngine(self.options, spending=spending, weights=weights) as engine:
            if (total := rows.count()) is not None:
                self.progress.total = min(total, self.plan.limit or total) - len(self.done)
            self.progress.restart()

            async def propose(work: Work) -> ProposedCriteria:
                try:
                    return await propose_criteria(engine, work.task, work.kind, most=self.most)
                except GeneratorFailed as error:
                    # What the model cannot take, or a filter withholds, says nothing about other rows.
                    down = "" if rejects_the_question(error) else str(error)
                    raise Unjudged(str(error), down=down, denied=engine.denied) from None
                except ValueError as error:
                    raise Unjudged(str(error)) from None

            try:
                await BatchRunner(propose, self, self.plan).run(self._remembered(rows))
            except (CostReached, TooManyFailures) as error:
                say(f"stopped: {error}; the same command resumes")
                return False
        return True

    def _remembered(self, rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
        for row in rows:
            if isinstance(row, Row):
                self._given[row.where] = row
            yield row

    def expects(self, work: Work, task: JudgeTask) -> bool:
        id = work.task.id
        if other := self._seen.get(id):
            raise RowError(f"its id {id!r} is already used by {other}")
        self._seen[id] = work.where
        if id not in self.done:
            return True
        self.before += 1
        del self._given[work.where]
        return False

    def judged(self, work: Work, result: ProposedCriteria) -> None:
        self.judged_rows += 1
        if result.dropped:
            say(f"{work.where}: rejected: {'; '.join(result.dropped)}")
        self.progress.show(self.progress.done + 1, self.progress.total)
        self.with_criteria += bool(result.kept)
        self.kept += len(result.kept)
        self.proposed += len(result.kept) + len(result.dropped)
        given = self._given.pop(work.where).fields
        # The row's own criteria were not judged, and an empty list of criteria is no row that can be judged.
        fields = {name: value for name, value in given.items() if name != "criteria"} | {"id": work.task.id}
        fields |= {"criteria": list(result.kept)} if result.kept else {}
        # Parquet has dates, decimal numbers and bytes too, which JSON has only as texts.
        self.lines.append(json.loads(json.dumps(fields, default=str)))

    def failed(self, failure: Failure) -> None:
        self.failed_rows += 1
        self.progress.show(self.progress.done + 1, self.progress.total)
        self._given.pop(failure.where, None)
        say(f"{failure.where}: {failure.reason}")

    def stopped(self, work: Work, error: Exception) -> None:
        raise error
