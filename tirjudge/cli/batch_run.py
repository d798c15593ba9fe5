"""A run over rows as the commands do it: resumed, shown, paid for, and summed up."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.batch import Batch, GivenUp, Plan
from tirjudge.cli.one_line import INTERRUPTED, stop
from tirjudge.cli.output_file import refuse_input
from tirjudge.cli.progress import Display, print_summary
from tirjudge.data.sources import RowSource
from tirjudge.embedded import embedded_model
from tirjudge.generation.base import Generator
from tirjudge.generation.cached import CachedGenerator, CompletionStore
from tirjudge.generation.metered import MeteredGenerator
from tirjudge.judging import JudgeConfig, Judging
from tirjudge.model_folder import weights_digest
from tirjudge.spending import CostReached, Price, Spending
from tirjudge.storage.result_file import ResultFile
from tirjudge.tally import Tally

CACHE_VARIABLE = "TIRJUDGE_CACHE"
"""Environment variable: the file in which completions are kept."""
_MOVABLE = ("base_url", "concurrency", "backend", "backend_options", "allow_weak_isolation")
"""What may differ when a run goes on: where it runs, not what is asked."""


@dataclass(slots=True, kw_only=True)
class BatchRun:
    """One start of a run; the same start again goes on where it was."""

    command: str
    """As it is typed behind `tirjudge`."""
    rows: RowSource
    config: JudgeConfig
    plan: Plan
    output: Path
    price: Price | None = None
    max_cost: float | None = None
    cache: bool = False
    overwrite: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else every verdict of the result file has in common."""
    _cached: CachedGenerator | None = None

    def run(self) -> bool:
        """Judge what is not judged yet and print the table; whether every row has a result."""
        refuse_input(self.output, self.rows)
        weights = "" if self.config.base_url else weights_digest(self.config.model or embedded_model())
        calls = self.output.with_name(self.output.name + ".calls.jsonl")
        with (
            ResultFile(self.output, self._settings(weights), overwrite=self.overwrite) as results,
            Spending(calls, price=self.price, limit=self.max_cost, overwrite=self.overwrite) as spending,
        ):
            return self._judge(results, spending, weights)

    def _judge(self, results: ResultFile, spending: Spending, weights: str) -> bool:
        tally = Tally()
        for row in results.rows():
            tally.add(row)
        display = Display(
            tally,
            total=_left(self.rows.count(), self.plan.limit, tally.judged),
            failures_file=str(results.failures_path),
        )
        try:
            whole, model, note = asyncio.run(self._batch(results, display, spending, weights))
        except KeyboardInterrupt:
            went = f"interrupted; the same command goes on, {tally.judged} rows are in {self.output}"
            stop(self.command, went, INTERRUPTED)
        cached = self._cached.hits if self._cached else 0
        print_summary(
            tally,
            seconds=display.seconds,
            model=model,
            note=note,
            path=str(self.output),
            spending=spending,
            cached=cached,
        )
        return whole and not tally.failed

    async def _batch(
        self, results: ResultFile, display: Display, spending: Spending, weights: str
    ) -> tuple[bool, str, str]:
        """Whether it came to its end, the model's name and its note."""
        if not sys.stderr.isatty():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

        def around(generator: Generator) -> Generator:
            return self._remembering(MeteredGenerator(generator, spending), weights)

        async with Judging(self.config, around=around) as judging:
            if self.config.format or self.plan.kind:
                judging.rollout(self.config.format or str(self.plan.kind))
            note = judging.note.note
            display.say(f"judging with {judging.model}" + (f", {note}" if note else ""))
            whole = True
            with display:
                try:
                    await Batch(judging, results, display, self.plan).run(self.rows)
                except (CostReached, GivenUp) as error:
                    whole = False
                    display.say(f"stopped: {error}; the same command goes on")
            return whole, judging.model, note

    def _remembering(self, generator: Generator, weights: str) -> Generator:
        if not self.cache:
            return generator
        config = self.config
        identity = {
            "model": config.model,
            "weights": weights,
            "base_url": config.base_url,
            "generator": config.generator,
            "generator_options": dict(config.generator_options),
            "tier": config.tier,
            "tokenizer": config.tokenizer,
        }
        self._cached = CachedGenerator(generator, CompletionStore(cache_file()), identity)
        return self._cached

    def _settings(self, weights: str) -> dict[str, Any]:
        """What every verdict in a result file has in common."""
        config, plan = self.config, self.plan
        return {
            **config.model_dump(exclude=set(_MOVABLE)),
            "format": config.format or plan.kind,
            "columns": plan.columns.model_dump(exclude_unset=True),
            "labels": plan.labels,
            "truncate": plan.truncate,
            "weights": weights,
            **self.settings,
        }


def cache_file() -> Path:
    """Where completions are kept: as the environment says, else in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tirjudge" / "completions.sqlite"


def _left(count: int | None, limit: int | None, judged: int) -> int | None:
    """Rows still to be judged, as far as it can be told beforehand."""
    if count is None:
        return None
    return max(0, min(count, limit or count) - judged)
