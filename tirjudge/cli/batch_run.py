"""A run over rows on the command line: resumed, displayed, metered and summed up."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tirjudge.cli.no_verdict import why_all_failed, why_no_verdict
from tirjudge.cli.options import RunnerOptions
from tirjudge.cli.output import INTERRUPTED, STANDARD_OUTPUT, refuse_input, say, stop
from tirjudge.cli.progress import Display, Summary, introduction
from tirjudge.cluster.dispatch import ClusterPlan, ClusterRows
from tirjudge.cluster.worker import Assignment
from tirjudge.data.sources import RowSource
from tirjudge.generation.spending import CostReached, Spending
from tirjudge.judging.batch import Batch, Plan, Tally, TooManyFailures
from tirjudge.judging.confidence import Abstention
from tirjudge.judging.config import endpoint_key
from tirjudge.judging.engine import JudgeEngine, MeteredCache, local_note, local_weights, view_tokens
from tirjudge.judging.row_judge import EngineRows, RowJudge
from tirjudge.storage.result_file import ResultFile, ResultStream


@dataclass(slots=True, kw_only=True)
class BatchRun:
    """One start of a run; the same command starts again where this one stopped."""

    command: str
    """The command's name after `tirjudge`."""
    rows: RowSource
    options: RunnerOptions
    plan: Plan
    output: Path
    """The result file, or `-`: standard output, which no run resumes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that every verdict of the result file shares."""
    abstention: Abstention | None = None
    """The rule by which verdicts are left open."""
    as_json: bool = False
    """Print the summary as JSON."""
    quiet: bool = False
    """Leave standard output to the caller: the summary goes to standard error."""
    _wrapped: MeteredCache = field(init=False)
    _cached: int = 0
    """Calls that a cache answered."""

    def run(self) -> bool:
        """Judge the rows without a result and print the summary.

        Returns True if every row has a result and at least one has a verdict, which may be left open.
        """
        refuse_input(self.output, self.rows)
        options = self.options
        options.check_runner()
        # Both refuse bad options, which should not leave an empty result file.
        weights, price = local_weights(options), options.price()
        with ExitStack() as stack:
            results: ResultFile | ResultStream
            if self.output == STANDARD_OUTPUT:
                results, calls = stack.enter_context(ResultStream()), None
            else:
                settings = self._settings(weights)
                results = stack.enter_context(ResultFile(self.output, settings, overwrite=options.overwrite))
                calls = self.output.with_name(self.output.name + ".calls.jsonl")
            spending = stack.enter_context(
                Spending(calls, price=price, limit=options.max_cost, overwrite=options.overwrite)
            )
            self._wrapped = MeteredCache(options, spending, weights)
            return self._judge(results, spending)

    def _judge(self, results: ResultFile | ResultStream, spending: Spending) -> bool:
        tally = Tally()
        for row in results.rows():
            tally.add(row)
        display = Display(
            tally,
            total=_left(self.rows.count(), self.plan.limit, tally.judged),
            failures_file=str(results.failures_path) if results.failures_path else None,
            spending=spending,
            row_lines=self.command == "judge",
        )
        try:
            completed, model, note = asyncio.run(self._batch(results, display, spending))
        except KeyboardInterrupt:
            kept = f"the same command resumes, {tally.judged} rows are in {self.output}"
            streamed = f"{tally.judged} rows were written, and a run to standard output cannot be resumed"
            reason = f"interrupted; {streamed if self.output == STANDARD_OUTPUT else kept}"
            stop(self.command, reason, INTERRUPTED)
        summary = Summary(
            tally=tally,
            seconds=display.seconds,
            model=model,
            note=note,
            path=str(self.output),
            spending=spending,
            cached=self._cached,
            retries=display.retries,
        )
        if self.as_json:
            record = json.dumps(summary.record(), indent=2)
            print(record, file=sys.stderr if self.output == STANDARD_OUTPUT else sys.stdout)
        else:
            summary.print(to_standard_error=self.quiet or self.output == STANDARD_OUTPUT)
        answered = tally.verdicts + tally.open
        if not answered:
            say(f"tirjudge {self.command}: no row got a verdict. {self._why(results, tally)}")
        return completed and not tally.failed and bool(answered)

    def _why(self, results: ResultFile | ResultStream, tally: Tally) -> str:
        """Return the likely reason why no row got a verdict."""
        if not tally.judged:
            return why_all_failed(str(failure["reason"]) for failure in results.failures())
        config = self.options.config
        return "Likely cause: " + why_no_verdict(
            results.rows(), config, view_tokens(config, local_note(config))
        )

    async def _batch(
        self, results: ResultFile | ResultStream, display: Display, spending: Spending
    ) -> tuple[bool, str, str]:
        """Return whether the run reached its end, the model's name and its note."""
        if not sys.stderr.isatty():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        on_ray = self.options.runner == "ray"
        async with self._on_ray(display, spending) if on_ray else self._here(display) as judge:
            plan, where = self.plan, ""
            if isinstance(judge, ClusterRows):
                plan, where = replace(plan, concurrency=judge.capacity), f"on a Ray cluster of {judge.size}"
            display.say(introduction(judge, self.options.config, spending.price, where=where))
            completed = True
            with display:
                try:
                    if not await Batch(judge, results, display, plan).run(self.rows):
                        raise ValueError(f"{self.rows.name} has no rows")
                except (CostReached, TooManyFailures) as error:
                    completed = False
                    resumes = "" if self.output == STANDARD_OUTPUT else "; the same command resumes"
                    display.say(f"stopped: {error}{resumes}")
            self._cached = judge.cached if isinstance(judge, ClusterRows) else self._wrapped.hits
            return completed, judge.model, judge.note

    @asynccontextmanager
    async def _here(self, display: Display) -> AsyncIterator[RowJudge]:
        """Open an engine in this process."""
        async with JudgeEngine(
            self.options.config, around=self._wrapped, on_retry=display.retried, abstention=self.abstention
        ) as engine:
            # Build the prompts of a fixed format now: a bad option should not wait for the first row.
            if self._format:
                engine.rollout(self._format)
            yield EngineRows(engine, texts=self.plan.texts)

    def _on_ray(self, display: Display, spending: Spending) -> ClusterRows:
        options, key = self.options, endpoint_key()
        assignment = Assignment(
            options=options,
            format=self._format,
            texts=self.plan.texts,
            abstention=self.abstention,
            api_key=None if key is None else SecretStr(key),
            weights=local_weights(options),
        )
        plan = ClusterPlan(
            address=options.address,
            endpoints=options.endpoint,
            gpus=options.worker_gpus,
            concurrency=options.concurrency,
        )
        return ClusterRows(assignment, plan, spending, say=display.say, on_retry=display.retried)

    @property
    def _format(self) -> str:
        """The format or kind of all rows; empty if each row decides."""
        return self.options.format or self.plan.kind or ""

    def _settings(self, weights: str) -> dict[str, Any]:
        """Return the settings that every verdict in the result file shares."""
        plan = self.plan
        return {
            **self.options.config.settings("backend", "backend_options"),
            "format": self.options.format or plan.kind,
            "columns": plan.columns.model_dump(exclude_unset=True),
            "labels": plan.labels,
            "truncate": plan.truncate,
            "max_tokens": view_tokens(self.options.config, local_note(self.options.config)),
            "weights": weights,
            **self.settings,
        }


def _left(count: int | None, limit: int | None, judged: int) -> int | None:
    """Return the number of rows still to be judged, None if the rows are not counted."""
    if count is None:
        return None
    return max(0, min(count, limit or count) - judged)
