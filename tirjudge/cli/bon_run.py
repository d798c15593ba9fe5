"""A run of best-of-N as the command does it: resumed, paid for, and summed up in solved counts."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextlib import aclosing
from contextlib import asynccontextmanager
from dataclasses import asdict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tirjudge.batch import Failure
from tirjudge.batch import GivenUp
from tirjudge.best_of_n.base import Method
from tirjudge.best_of_n.grading import Grades
from tirjudge.best_of_n.judgments import Judgments
from tirjudge.best_of_n.questions import CheckName
from tirjudge.best_of_n.questions import questions
from tirjudge.best_of_n.run import BestOfN
from tirjudge.best_of_n.run import Picked
from tirjudge.best_of_n.run import SolvedTally
from tirjudge.cli.one_line import INTERRUPTED
from tirjudge.cli.one_line import say
from tirjudge.cli.one_line import stop
from tirjudge.cli.output_file import refuse_input
from tirjudge.cli.progress import say_failure
from tirjudge.console_text import Interval
from tirjudge.console_text import printable
from tirjudge.data.sources import RowSource
from tirjudge.embedded import embedded_model
from tirjudge.generation.metered import MeteredGenerator
from tirjudge.judging import JudgeConfig
from tirjudge.judging import Judging
from tirjudge.model_folder import weights_digest
from tirjudge.spending import CostReached
from tirjudge.spending import Price
from tirjudge.spending import Spending
from tirjudge.storage.result_file import ResultFile
from tirjudge.storage.run_folder import JsonLines
from tirjudge.tally import Tally
from tirjudge_environments.tasks import Columns
from typing import Any


@dataclass(frozen=True, slots=True)
class _Judge:
    """What a run with a judge holds open."""

    results: ResultFile
    judgments: Judgments
    spending: Spending


@dataclass(frozen=True, slots=True, kw_only=True)
class BonRun:
    """One start of a run; the same start again goes on where it was."""

    rows: RowSource
    output: Path
    """Judgments; grades, picks, calls, failures and settings stand beside it."""
    config: JudgeConfig
    methods: Mapping[str, Method]
    """By name; none: no judge is opened."""
    check: CheckName
    columns: Columns
    most: int | None
    limit: int | None
    truncate: int | None
    give_up_after: int
    price: Price | None
    max_cost: float | None
    overwrite: bool

    def run(self) -> bool:
        """Select from every question and print the table; whether all of them are done."""
        refuse_input(self.output, self.rows)
        try:
            return asyncio.run(self._run())
        except KeyboardInterrupt:
            went = f"interrupted; the same command goes on, its judgments are in {self.output}"
            stop("bon", went, INTERRUPTED)

    async def _run(self) -> bool:
        async with AsyncExitStack() as stack:
            judge = await stack.enter_async_context(self._judge()) if self.methods else None
            weak = self.config.allow_weak_isolation
            grades = await stack.enter_async_context(
                Grades(self._beside("grades"), allow_weak_isolation=weak)
            )
            picks = stack.enter_context(JsonLines(self._beside("picks"), truncate=True))
            tally, progress = SolvedTally(), _Progress()
            whole = await self._select(judge, grades, picks, tally, progress)
            _print_solved(tally, progress)
            if judge is not None:
                _print_spent(judge)
            print(f"seconds   {progress.seconds:.1f} of this run")
            print(f"picks     {printable(str(self._beside('picks')))}")
            return whole and not progress.failed

    async def _select(
        self, judge: _Judge | None, grades: Grades, picks: JsonLines, tally: SolvedTally, progress: _Progress
    ) -> bool:
        """Whether it came to its end."""
        best_of_n = BestOfN(
            grades=grades,
            judgments=judge.judgments if judge else None,
            methods=self.methods,
            truncate=self.truncate,
            at_once=self.config.concurrency,
            give_up_after=self.give_up_after,
        )
        rows = islice(self.rows, self.limit)
        asked = questions(rows, check=self.check, columns=self.columns, most=self.most)
        try:
            async with aclosing(best_of_n.run(asked)) as finished:
                async for one in finished:
                    progress.count(one)
                    if isinstance(one, Picked):
                        tally.add(one)
                        picks.append(one.record)
                    elif judge is not None:
                        judge.results.append_failure(asdict(one))
        except (CostReached, GivenUp) as error:
            say(f"stopped: {error}; the same command goes on")
            return False
        return True

    @asynccontextmanager
    async def _judge(self) -> AsyncIterator[_Judge]:
        if not sys.stderr.isatty():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        with (
            ResultFile(self.output, self._settings(), overwrite=self.overwrite) as results,
            Spending(
                self._beside("calls"), price=self.price, limit=self.max_cost, overwrite=self.overwrite
            ) as spending,
        ):
            async with Judging(self.config, around=lambda one: MeteredGenerator(one, spending)) as judging:
                note = judging.note.note
                say(f"judging with {judging.model}" + (f", {note}" if note else ""))
                yield _Judge(results, Judgments(judging, results), spending)

    def _settings(self) -> dict[str, Any]:
        """What every judgment in the file has in common; not the methods, which share them."""
        config = self.config
        return {
            **config.model_dump(exclude={"base_url", "concurrency", "allow_weak_isolation"}),
            "truncate": self.truncate,
            "weights": "" if config.base_url else weights_digest(config.model or embedded_model()),
            "benchmark": "best-of-n",
        }

    def _beside(self, name: str) -> Path:
        return self.output.with_name(f"{self.output.name}.{name}.jsonl")


class _Progress:
    """What became of the rows, said now and then."""

    def __init__(self) -> None:
        self.done = self.failed = 0
        self._started = time.monotonic()
        self._interval = Interval()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def count(self, one: Picked | Failure) -> None:
        if isinstance(one, Failure):
            self.failed += 1
            say_failure(one, self.failed)
        else:
            self.done += 1
        if self._interval.over():
            say(f"{self.done} rows done, {self.failed} failed, {self.seconds:.0f} s")


def _print_solved(tally: SolvedTally, progress: _Progress) -> None:
    """Plain lines, which programs can read too."""
    each = tally.candidates / tally.questions if tally.questions else 0.0
    print(f"rows      {tally.questions} of {each:.1f} candidates each, {progress.failed} failed")
    print(f"{'select by':<14}{'solved':>8}  {'of all, 95 % interval':<26}{'judgments':>9}{'undecided':>11}")
    for line in tally.lines:
        solved = f"{line.solved.successes:.1f}".removesuffix(".0")
        rate = str(line.solved).partition(", n")[0]
        print(f"{line.name:<14}{solved:>8}  {rate:<26}{line.judgments:>9}{line.undecided:>11}")


def _print_spent(judge: _Judge) -> None:
    """Of all runs into the file."""
    judged = Tally()
    for row in judge.results.rows():
        judged.add(row)
    spending = judge.spending
    print(f"judged    {judged.judged} times in all runs, {judged.verdicts} with a verdict")
    print(f"programs  {judged.programs} run, {judged.programs_failed} failed")
    print(f"tokens    {judged.prompt_tokens} read, {judged.completion_tokens} written")
    print(f"calls     {spending.calls} in {spending.seconds:.1f} s of the model's time")
    if spending.cost is not None:
        print(f"cost      {spending.cost:.4f}")
