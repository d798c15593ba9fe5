"""A run over rows on the command line: resumed, displayed, metered and summed up."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.cli.errors import INTERRUPTED, refuse_input, stop
from tirjudge.cli.options import RowOptions
from tirjudge.cli.progress import Display, print_summary, summary_record
from tirjudge.data.sources import RowSource
from tirjudge.generation.spending import CostReached, Spending
from tirjudge.judging.batch import Batch, Plan, Tally, TooManyFailures
from tirjudge.judging.engine import JudgeEngine, MeteredCache, local_note, local_weights, view_tokens
from tirjudge.storage.result_file import ResultFile

_MOVABLE = {"base_url", "concurrency", "backend", "backend_options", "allow_weak_isolation"}
"""Options that may differ when a run resumes: they say where it runs, not what the judge is asked."""


@dataclass(slots=True, kw_only=True)
class BatchRun:
    """One start of a run; the same command starts again where this one stopped."""

    command: str
    """The command's name after `tirjudge`."""
    rows: RowSource
    options: RowOptions
    plan: Plan
    output: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that every verdict of the result file shares."""
    as_json: bool = False
    """Print the summary as JSON."""
    _wrapped: MeteredCache = field(init=False)

    def run(self) -> bool:
        """Judge the rows without a result and print the summary; return whether every row has a result."""
        refuse_input(self.output, self.rows)
        options = self.options
        weights = local_weights(options)
        calls = self.output.with_name(self.output.name + ".calls.jsonl")
        with (
            ResultFile(self.output, self._settings(weights), overwrite=options.overwrite) as results,
            Spending(
                calls, price=options.price(), limit=options.max_cost, overwrite=options.overwrite
            ) as spending,
        ):
            self._wrapped = MeteredCache(options, spending, weights)
            return self._judge(results, spending)

    def _judge(self, results: ResultFile, spending: Spending) -> bool:
        tally = Tally()
        for row in results.rows():
            tally.add(row)
        display = Display(
            tally,
            total=_left(self.rows.count(), self.plan.limit, tally.judged),
            failures_file=str(results.failures_path),
            row_lines=self.command == "judge",
        )
        try:
            completed, model, note = asyncio.run(self._batch(results, display))
        except KeyboardInterrupt:
            reason = f"interrupted; the same command resumes, {tally.judged} rows are in {self.output}"
            stop(self.command, reason, INTERRUPTED)
        facts: dict[str, Any] = {
            "seconds": display.seconds,
            "model": model,
            "note": note,
            "path": str(self.output),
            "spending": spending,
            "cached": self._wrapped.hits,
        }
        if self.as_json:
            print(json.dumps(summary_record(tally, **facts), indent=2))
        else:
            print_summary(tally, **facts)
        return completed and not tally.failed

    async def _batch(self, results: ResultFile, display: Display) -> tuple[bool, str, str]:
        """Return whether the run reached its end, the model's name and its note."""
        if not sys.stderr.isatty():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        async with JudgeEngine(self.options.config, around=self._wrapped) as engine:
            # Build the prompts of a fixed format now: a bad option should not wait for the first row.
            if self.options.format or self.plan.kind:
                engine.rollout(self.options.format or str(self.plan.kind))
            note = engine.note.note
            display.say(f"judging with {engine.model}" + (f", {note}" if note else ""))
            completed = True
            with display:
                try:
                    await Batch(engine, results, display, self.plan).run(self.rows)
                except (CostReached, TooManyFailures) as error:
                    completed = False
                    display.say(f"stopped: {error}; the same command resumes")
            return completed, engine.model, note

    def _settings(self, weights: str) -> dict[str, Any]:
        """Return the settings that every verdict in the result file shares."""
        plan = self.plan
        return {
            **self.options.config.model_dump(exclude=_MOVABLE),
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
