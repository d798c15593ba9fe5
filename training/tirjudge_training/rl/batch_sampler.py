"""Generation batches, sampled when a step needs them or while the step before is trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments.types import derive_seed
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import PhaseTimer
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import RoundProgress, SampledBatch, gather
from tirjudge_training.rl.overlong import punished
from tirjudge_training.rl.stream import RowStream, TaskSource

if TYPE_CHECKING:
    from tirjudge_training.rl.rollout_engine import Engine

PLAIN = ("step", "staleness", "seconds")
"""The fields of a generation batch that JSON can hold as they are."""
AHEAD = "next_batch.json"
"""The file of a checkpoint with the batch that was sampled ahead of it."""


@dataclass(frozen=True, slots=True)
class GenerationBatch:
    """One generation batch, as it is passed to the metrics log."""

    step: int
    batch: SampledBatch
    stream: RowStream | None = None
    """The stream that the batch was drawn from, at the place after it."""
    staleness: int = 0
    """Steps of training between the weights that sampled the batch and the weights that it trains."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds in which this process generated, and in which it only waited for programs."""
    sampler_gap: float = 0.0
    """The largest |sampler logprob - trainer logprob| over the compared tokens of the model."""


class BatchSampler:
    """Samples the batches of a run in turn. Each of several processes makes the same calls.

    With `off_policy`, the batch of step k + 1 is sampled with the weights from before step k while step k is
    trained, so that it is one step old when it is trained in its turn.
    """

    def __init__(
        self,
        engine: Engine,
        source: TaskSource,
        config: RlConfig,
        seed: int,
        *,
        progress: RoundProgress = lambda ended, tokens, rollouts: None,
        on_weights: Callable[[int], None] | None = None,
        processes: Processes = ALONE,
    ) -> None:
        """Raises ValueError if `off_policy` would change the weights of the sampler while it samples."""
        if config.off_policy and not engine.has_own_weights:
            raise ValueError(
                "off_policy trains the weights that sample: open the Engine with off_policy=True"
            )
        self._engine, self._source, self._config, self._seed = engine, source, config, seed
        self._progress, self._on_weights = progress, on_weights
        # Training exchanges values at the same time, in the main thread.
        self._processes = processes.apart() if config.off_policy else processes
        self._ahead: Future[GenerationBatch] | None = None

    def batch(self, step: int, timer: PhaseTimer) -> GenerationBatch:
        """Return the batch of a step. The sampler gets the current weights, for this batch or the next."""
        found = None
        if self._ahead is not None:
            # Before `refresh`: the weights must not change while rollouts are running.
            found, self._ahead = self._ahead.result(), None
            timer.end("rollout")
        self._engine.refresh()  # the weights have changed since the last batch
        timer.end("refresh")
        if self._on_weights is not None:
            self._on_weights(step)
            timer.end("validation")
        if found is None:
            found = self._engine.run(self._sample(step, step, self._progress))
            timer.end("rollout")
        if self._config.off_policy and step + 1 < self._config.steps and not self._exhausted:
            self._ahead = self._engine.start(self._sample(step + 1, step, lambda *counts: None))
        else:
            self._engine.rest()  # the KV cache would take memory from training
        return found

    @property
    def ended(self) -> bool:
        """True if no batch is left because the rows have come to an end."""
        return self._exhausted and self._ahead is None

    def save(self, checkpoint: Path) -> None:
        """Write the batch that is sampled ahead into a checkpoint folder; waits for its rollouts."""
        if self._ahead is not None and self._processes.rank == 0:
            write_atomically(checkpoint / AHEAD, encoded(self._ahead.result()))

    def resume(self, checkpoint: Path | None) -> None:
        """Go on after a checkpoint, with the batch that was sampled ahead of it."""
        text = self._processes.first(lambda: _read(checkpoint))
        if text is None or not self._config.off_policy:
            return
        generation, place = decoded(text)
        if isinstance(self._source, RowStream):
            self._source.go_to(place)
            # The record of this batch needs the place after it, and later batches move the source on.
            generation = replace(generation, stream=copy(self._source))
        self._ahead = Future()
        self._ahead.set_result(generation)

    @property
    def _exhausted(self) -> bool:
        return isinstance(self._source, RowStream) and self._source.exhausted

    async def _sample(self, step: int, weights: int, progress: RoundProgress) -> GenerationBatch:
        engine, config, source = self._engine, self._config, self._source
        if isinstance(source, RowStream):
            # Every round draws from the place that the last one left.
            sample_task, drawn = (lambda number, position: source(position)), source.draw
        else:
            # The tasks are a function of step, round and position: no place has to be kept.
            sample_task, drawn = (
                (lambda number, position: source(step, number, position)),
                lambda positions: None,
            )
        generated, waited = engine.generator.busy_seconds, engine.waited_seconds
        batch = await gather(
            sample_task,
            engine.rollouts(derive_seed("rollout", self._seed, step)),
            slots=config.groups,
            size=config.samples,
            by=config.filter,
            replacement_rounds=config.replacement_rounds,
            resamples=config.resamples,
            at_once=config.rollouts_at_once,
            processes=self._processes,
            progress=progress,
            drawn=drawn,
            adjust=partial(punished, config=config.overlong, limit=config.max_tokens),
        )
        return GenerationBatch(
            step,
            batch,
            # A copy, because the batch ahead moves the source on before this batch is recorded.
            stream=copy(source) if isinstance(source, RowStream) else None,
            staleness=step - weights,
            seconds={
                "seconds/generating": round(engine.generator.busy_seconds - generated, 3),
                "seconds/waiting": round(engine.waited_seconds - waited, 3),
            },
        )


def encoded(generation: GenerationBatch) -> str:
    """Return a generation batch as JSON, with every token and logprob."""
    stream = generation.stream
    return json.dumps(
        {
            "batch": TypeAdapter(SampledBatch).dump_python(generation.batch, mode="json"),
            "place": None if stream is None else stream.place,
            **{name: getattr(generation, name) for name in PLAIN},
        }
    )


def decoded(text: str) -> tuple[GenerationBatch, Any]:
    """Return what `encoded` wrote, and the place after the batch."""
    found = json.loads(text)
    batch = TypeAdapter(SampledBatch).validate_python(found["batch"])
    return GenerationBatch(batch=batch, **{name: found[name] for name in PLAIN}), found["place"]


def _read(checkpoint: Path | None) -> str | None:
    file = None if checkpoint is None else checkpoint / AHEAD
    return file.read_text(encoding="utf-8") if file is not None and file.exists() else None
