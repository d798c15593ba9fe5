"""Gain and price of over-sampling: batch time, wasted tokens, and the lengths of the kept rollouts.

    python -m benchmarks.stragglers

A simulation of dynamic sampling itself (`gather` on a `RowStream`) with rollouts whose time is proportional
to their length, on a clock that jumps from one event to the next. Lengths are lognormal with a mean of 600
tokens and at most 8,192, as the plan of the recipes assumes; half of the variance of their logarithm belongs
to the task and half to the sample. A verdict is right with a probability of one half whatever its length.
Every rollout runs at its own constant speed, so the saving is the largest one possible: an engine that is
busy with all of them decodes faster once some have ended.

Each figure is a mean over independent runs with its 95 % interval. Bias is the mean length of the rollouts
that are trained on, divided by the mean length of all that were begun: in the first batch, and over a whole
pass, in which tasks that were cut come again.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tirjudge_environments import (
    By,
    Environment,
    Episode,
    JudgeTask,
    Message,
    Score,
    Segment,
    StopReason,
    Trajectory,
    Verdict,
)
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_training.rl.dynamic_sampling import Batch, FormattedTask, gather
from tirjudge_training.rl.stream import RowStream

T = TypeVar("T")

MEAN, LONGEST, SPREAD = 600, 8192, 0.8
Lengths = Callable[[int, str, int], int]
"""Maps (step, task id, sample) to the tokens of a rollout."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._now


def on_jumping_clock(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop whose clock jumps, and return its result."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


class Simulated:
    """Rollouts that take one second per token and are right or wrong by chance."""

    def __init__(self, lengths: Lengths, step: int, correct: Callable[[int, str, int], bool]) -> None:
        self.environment: Environment = TirPairwise(order="given")
        self._lengths, self._step, self._correct = lengths, step, correct
        self.begun: dict[tuple[str, int], float] = {}

    async def episode(self, task: JudgeTask, sample: int = 0) -> Episode:
        self.begun[task.id, sample] = asyncio.get_running_loop().time()
        await asyncio.sleep(self._lengths(self._step, task.id, sample))
        right = self._correct(self._step, task.id, sample)
        text = f"<preference>{'A' if right else 'B'}</preference>"
        view = self.environment.views(task)[0]
        return Episode(
            task,
            sample,
            (
                Trajectory(
                    view=view,
                    sample=sample,
                    prompt=self.environment.prompt(task, view),
                    prompt_ids=(1,),
                    segments=(Segment(by=By.MODEL, text=text, ids=(1,), logprobs=(-0.5,)),),
                    calls=(),
                    stop=StopReason.VERDICT,
                    verdict=Verdict(choice=0 if right else 1),
                ),
            ),
        )

    async def score(self, group: Sequence[Episode]) -> list[tuple[Score, ...]]:
        return self.environment.score(group, {})


def task(number: int) -> FormattedTask:
    made = JudgeTask(id=str(number), prompt=(Message("user", "q"),), candidates=("x", "y"), label=0)
    return FormattedTask("pair", made)


@dataclass(frozen=True)
class Figures:
    """The figures of one run."""

    seconds: float
    """Mean time of a batch, in tokens of one rollout."""
    wasted: float
    """The share of all generated tokens that is in no rollout of a batch."""
    waiting: float
    """The share of the sampling time for which a task that was done waited."""
    first_bias: float
    pass_bias: float


def lognormal(seed: int) -> Lengths:
    """Return lengths that are a function of (seed, step, task, sample)."""
    deviation = SPREAD / math.sqrt(2)
    shift = math.log(MEAN) - SPREAD**2 / 2

    def lengths(step: int, name: str, sample: int) -> int:
        of_task = random.Random(f"{seed} {name}").gauss(0, deviation)
        of_sample = random.Random(f"{seed} {name} {step} {sample}").gauss(0, deviation)
        return max(1, min(LONGEST, round(math.exp(shift + of_task + of_sample))))

    return lengths


def simulated(seed: int, oversample: float, *, tasks: int, slots: int, size: int) -> Figures:
    """Sample one pass over the tasks and return its figures."""
    lengths = lognormal(seed)

    def correct(step: int, name: str, sample: int) -> bool:
        return random.Random(f"verdict {seed} {name} {step} {sample}").random() < 0.5

    stream = RowStream(task, per_pass=tasks, stride=slots, limit=tasks)
    seconds, waited, kept, everything = list[float](), list[float](), list[int](), list[int]()
    generated, step, first = 0.0, 0, 0.0
    while not stream.exhausted:
        rollouts = Simulated(lengths, step, correct)

        async def sampled(rollouts: Simulated = rollouts) -> tuple[Batch, float]:
            batch = await gather(
                lambda number, position: stream(position),
                {"pair": rollouts},
                slots=slots,
                size=size,
                oversample=oversample,
                drawn=stream.draw,
            )
            return batch, asyncio.get_running_loop().time()

        batch, end = on_jumping_clock(sampled())
        generated += sum(
            min(end - begun, lengths(step, name, sample)) for (name, sample), begun in rollouts.begun.items()
        )
        seconds.append(end)
        waited.append(batch.times.waited / batch.times.seconds)
        names = [group.formatted.task.id for group in batch.first]
        kept += [lengths(step, name, sample) for name in names for sample in range(size)]
        if step == 0:
            first = statistics.fmean(kept) / statistics.fmean(
                lengths(0, name, sample) for name, sample in rollouts.begun
            )
        step += 1
    everything = [lengths(0, str(number), sample) for number in range(tasks) for sample in range(size)]
    return Figures(
        seconds=sum(seconds) / (len(kept) / (slots * size)),
        wasted=1 - sum(kept) / generated,
        waiting=statistics.fmean(waited),
        first_bias=first,
        pass_bias=statistics.fmean(kept) / statistics.fmean(everything),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="runs with the seeds 0, 1, ...")
    parser.add_argument("--tasks", type=int, default=2560, help="tasks of a pass")
    parser.add_argument("--groups", type=int, default=128)
    parser.add_argument("--samples", type=int, default=8)
    options = parser.parse_args()
    print(f"{options.runs} runs of one pass over {options.tasks} tasks, {options.groups} x {options.samples}")
    print("| oversample | time of a batch | wasted tokens | tasks waiting | bias, first batch | bias, pass |")
    print("|---|---|---|---|---|---|")
    for oversample in (1.0, 1.25, 1.5, 2.0):
        runs = [
            simulated(seed, oversample, tasks=options.tasks, slots=options.groups, size=options.samples)
            for seed in range(options.runs)
        ]
        cells = (interval([getattr(run, name) for run in runs]) for name in Figures.__annotations__)
        print(f"| {oversample:g} | {' | '.join(cells)} |")


def interval(values: Sequence[float]) -> str:
    """Return mean and 95 % interval, normal over runs."""
    mean = statistics.fmean(values)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    digits = 0 if mean > 100 else 3
    return f"{mean:,.{digits}f} [{mean - half:,.{digits}f}, {mean + half:,.{digits}f}]"


if __name__ == "__main__":
    main()
