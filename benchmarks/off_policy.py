"""Trajectories per second with sampling one step ahead of training, compared with the two in turn.

    OMP_NUM_THREADS=1 python -m benchmarks.off_policy

The embedded miniature is trained by RL with the real sandbox, whose programs sleep for `--seconds` first, as
slow ones do that wait for a network or another machine. Sampling computes in a copy of the model, so on a CPU
only the waiting for programs can overlap with training; sampler and trainer share the cores. The rate is that
of the steps after the first, which has nothing to overlap with.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from examples.miniature import TRAINED
from examples.miniature.__main__ import write_rows
from examples.miniature.model import ENVIRONMENT
from examples.miniature.synthesis import CANDIDATES
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.run_folder import RunFolder
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.rows import RowData
from tirjudge_training.rl import rollout_engine
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.training_loop import train_rl


class Slow:
    """The local sandbox with room for every program, each of which sleeps first."""

    def __init__(self, seconds: float) -> None:
        self._inner: Sandbox = open_sandbox("local", capacity=64, preload=())
        self._line = f"import time; time.sleep({seconds})\n"
        self.capacity = self._inner.capacity

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        slow = Program(source=self._line + program.source, bindings=program.bindings)
        return await self._inner.run(slow, limits)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--groups", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0, help="sleep of each program")
    options = parser.parse_args()
    rollout_engine.open_sandbox = lambda name, **others: Slow(options.seconds)  # type: ignore[assignment]
    rates = {}
    for off_policy in (False, True):
        rates[off_policy], shares = measured(off_policy, options)
        name = "one step ahead" if off_policy else "in turn"
        print(
            f"{name}: {rates[off_policy]:.2f} trajectories per second of {options.steps - 1} steps; {shares}"
        )
    print(f"ratio {rates[True] / rates[False]:.2f}")


def measured(off_policy: bool, options: argparse.Namespace) -> tuple[float, str]:
    """Return the rate of the steps after the first, and the mean seconds of their phases."""
    config = RlConfig(
        steps=options.steps,
        groups=options.groups,
        samples=8,
        micro_batch=options.groups * 8,
        learning_rate=1e-5,
        beta=0.0,
        filter="none",
        replacement_rounds=0,
        max_tokens=144,
        checkpoint_every=options.steps,
        importance_cap=2.0,
        off_policy=off_policy,
    )
    ends = []

    def say(line: str) -> None:
        if " reward " in line:
            ends.append(time.perf_counter())

    judges = {name: EnvironmentConfig(name=name, options=ENVIRONMENT) for name in CANDIDATES}
    with TemporaryDirectory() as folder, RunFolder(Path(folder) / "rl") as run:
        write_rows(Path(folder), train=2 * options.steps * options.groups, heldout=1, seed=0)
        data = RowData(DataConfig(train=Path(folder) / "train.jsonl"), judges)
        train_rl(
            TRAINED,
            run,
            config,
            environments=data.environments,
            source=data.source(options.groups, 0),
            seed=0,
            say=say,
        )
        rows = list(read_lines(run.path / "metrics.jsonl"))[1:]
    phases = ("rollout", "logprobs", "train")
    means = [f"{part} {sum(row[f'seconds/{part}'] for row in rows) / len(rows):.2f} s" for part in phases]
    return options.groups * 8 * len(rows) / (ends[-1] - ends[0]), ", ".join(means)


if __name__ == "__main__":
    main()
