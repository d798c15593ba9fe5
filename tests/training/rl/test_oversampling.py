"""Batches that are taken before all rollouts have ended: what is kept, cut, returned and repeated."""

from __future__ import annotations

import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stragglers import Simulated, lognormal, on_jumping_clock, task
from tests.training.conftest import ENVIRONMENTS
from tests.training.forked import killed
from tirjudge.storage.run_folder import RunFolder, read_lines
from tirjudge_environments import JudgeTask, Message
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox
from tirjudge_training.rl import engine
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import Batch, FormattedTask, gather
from tirjudge_training.rl.run import train_rl
from tirjudge_training.rl.sampling import CUTS
from tirjudge_training.rl.stream import RowStream

SIZE, SLOTS, PASS = 4, 6, 30


def sample(rollouts: Simulated, stream: RowStream, **options: Any) -> Batch:
    return on_jumping_clock(
        gather(
            lambda number, position: stream(position),
            {"pair": rollouts},
            slots=SLOTS,
            size=SIZE,
            drawn=stream.draw,
            **options,
        )
    )


def ids(batch: Batch) -> list[str]:
    return [one.formatted.task.id for one in (*batch.first, *batch.replacements)]


def mixed(step: int, name: str, number: int) -> bool:
    """Answer half of the samples right; all of them for every fourth task, which teaches nothing."""
    return number % 2 == 0 or int(name) % 4 == 0


def test_the_groups_that_end_first_are_kept_and_they_are_shorter() -> None:
    """The expected tasks are those with the smallest longest rollout, by sorting."""
    lengths = lognormal(seed=1)
    stream = RowStream(task, per_pass=PASS, stride=SLOTS, limit=PASS)
    batch = sample(Simulated(lengths, 0, mixed), stream, oversample=2.0)
    ends = {name: max(lengths(0, str(name), one) for one in range(SIZE)) for name in range(2 * SLOTS)}
    by_end = sorted(ends, key=ends.__getitem__)
    taught = [name for name in by_end if name % 4 != 0][:SLOTS]
    ended = [name for name in by_end if ends[name] <= ends[taught[-1]]]
    assert ids(batch) == [str(name) for name in sorted(ended)]
    assert len(batch.kept) == SLOTS
    assert batch.times.seconds == ends[taught[-1]]
    assert batch.cut is not None
    assert batch.cut.rollouts == SIZE * (2 * SLOTS - len(ended))
    assert batch.times.waited == pytest.approx(
        sum(ends[taught[-1]] - ends[name] for name in ended) / (2 * SLOTS)
    )
    kept = [lengths(0, str(name), one) for name in taught for one in range(SIZE)]
    everything = [lengths(0, str(name), one) for name in range(2 * SLOTS) for one in range(SIZE)]
    assert statistics.fmean(kept) < 0.9 * statistics.fmean(everything)
    # Those that were cut come first in the next batch.
    left = [name for name in range(2 * SLOTS) if name not in ended]
    assert [int(found.task.id) for position in range(len(left)) if (found := stream(position))] == left


def test_every_row_is_used_once_per_pass_whatever_was_cut() -> None:
    stream = RowStream(task, per_pass=PASS, stride=SLOTS, limit=2 * PASS)
    lengths, used = lognormal(seed=2), list[str]()
    while not stream.exhausted:
        used += ids(sample(Simulated(lengths, 0, mixed), stream, oversample=1.5))
    assert Counter(used) == {str(number): 1 for number in range(2 * PASS)}


def test_without_oversampling_everything_is_awaited() -> None:
    lengths = lognormal(seed=1)
    stream = RowStream(task, per_pass=PASS, stride=SLOTS)
    batch = sample(Simulated(lengths, 0, mixed), stream)
    assert ids(batch) == [str(name) for name in range(SLOTS)]
    assert batch.cut is None
    assert batch.times.seconds == max(
        lengths(0, str(name), one) for name in range(SLOTS) for one in range(SIZE)
    )


CONFIG = RlConfig(
    steps=4,
    groups=2,
    samples=4,
    micro_batch=4,
    beta=0.0,
    learning_rate=1e-6,  # it must go on calling programs
    max_tokens=60,
    filter="none",
    oversample=2.0,
    checkpoint_every=2,
)
ASLEEP = 90.0
"""Seconds for which a slow program sleeps."""


def row(position: int) -> FormattedTask:
    """Return a pair; the programs of two pairs of the first batch are slow."""
    name = f"{'slow' if position in (0, 3) else 'fast'}-{position}"
    made = JudgeTask(id=name, prompt=(Message("user", "q"),), candidates=(name, "bad"), label=0)
    return FormattedTask("tir-pairwise", made)


class Sleepy:
    """The real sandbox, in which the programs of some tasks sleep first."""

    def __init__(self, inner: Sandbox, slow: str, seconds: float) -> None:
        self._inner, self._slow, self._seconds, self.capacity = inner, slow, seconds, inner.capacity

    async def __aenter__(self) -> Sleepy:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        if self._slow in str(program.bindings):
            source = f"import time; time.sleep({self._seconds})\n{program.source}"
            program = Program(source=source, bindings=program.bindings)
            limits = Limits(wall_seconds=2 * ASLEEP)
        return await self._inner.run(program, limits)


def train(
    start: Path,
    folder: Path,
    say: Callable[[str], None] = lambda line: None,
    slow: str = "slow",
    seconds: float = ASLEEP,
) -> None:
    opened = open_sandbox
    # Places for the programs of two slow tasks: those that were cut must have left theirs.
    engine.open_sandbox = lambda name, **options: Sleepy(  # type: ignore[assignment]
        opened(name, capacity=10, preload=()), slow, seconds
    )
    try:
        with RunFolder(folder) as run:
            rows = RowStream(row, per_pass=99, stride=2)
            train_rl(start, run, CONFIG, environments=ENVIRONMENTS, source=rows, seed=1, say=say)
    finally:
        engine.open_sandbox = opened


def written(folder: Path, step: int) -> list[Any]:
    """Return the ids and dialogues of a step."""
    return [
        (one["id"], one["sample"], [trajectory["segments"] for trajectory in one["trajectories"]])
        for one in read_lines(folder / "episodes.jsonl")
        if one["step"] == step
    ]


def test_slow_programs_are_killed_and_a_killed_run_repeats_what_it_had_consumed(
    tiny_model: Path, tmp_path: Path
) -> None:
    """The run is killed in its third step, after the last checkpoint. When it resumes, the tasks are slow
    that had been fast: without a record of the cuts it would use the others."""
    began = time.monotonic()
    assert killed(train, tiny_model, tmp_path, "rl 3/4") == -signal.SIGKILL
    before, metrics = written(tmp_path, 2), list(read_lines(tmp_path / "metrics.jsonl"))
    assert "sandbox" in str(before), "the tasks of this step must call programs"
    cuts = list(read_lines(tmp_path / CUTS))
    assert [one["step"] for one in cuts] == [0, 1, 2]
    assert [one["rollouts/cut"] for one in metrics] == [one["rollouts"] for one in cuts] == [8, 8, 8]
    assert sum(one["tokens/wasted"] for one in metrics) > 0
    train(tiny_model, tmp_path, slow="fast", seconds=1.5)
    assert time.monotonic() - began < ASLEEP, "slow programs must not have been awaited"
    assert written(tmp_path, 2) == before
    again = list(read_lines(tmp_path / "metrics.jsonl"))
    assert len(again) == CONFIG.steps
    for name in ("loss", "grad_norm", "rollouts/cut", "tokens/wasted", "tokens/generated", "rows/seen"):
        assert again[2][name] == pytest.approx(metrics[2][name], abs=1e-5), name
    assert [one["step"] for one in read_lines(tmp_path / CUTS)] == [0, 1, 2, 3]
