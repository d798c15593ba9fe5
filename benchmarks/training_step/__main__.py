"""Optimizer steps per second and peak memory of our RL step, compared with a bare GRPOTrainer.

    OMP_NUM_THREADS=1 python -m benchmarks.training_step
    OMP_NUM_THREADS=1 python -m benchmarks.training_step --only training/1M

Both train on the same rollouts, which are given: groups of four with a shared prompt of random tokens,
responses of lognormal lengths and a program's output in the middle, seed 0. Model, micro-batches, loss (DAPO
without a KL term) and optimizer are the same, which is checked: the gradient norms of each pair must agree
within 1 %. Weights are random and in float32: the miniature's shape, one of 16 M parameters of the same kind,
and that of SmolLM2-135M, for which the batch is smaller. Each trainer is a process of its own, which waits
while the other one steps; memory is its largest resident set so far.

The limit is six floating-point operations per parameter and token, prompts counted once per group, at the
rate of a large matrix product in this process. Tokens behind which nothing is learned need less than that, so
a step may come close to it or exceed it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from benchmarks.training_step.trainers import NORM, TRAINERS, WORKLOADS, Workload, model_of, rollouts_of


class Process:
    """A trainer in a process of its own, which takes one step at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, trainer: str, size: str) -> Process:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "benchmarks.training_step.trainers", trainer, size]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=None))

    async def step(self) -> Run:
        """Take a step; raises RuntimeError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        while line := (await self._process.stdout.readline()).decode():
            if line.startswith('{"seconds"'):  # libraries print other lines
                found = json.loads(line)
                return Run(1 / found.pop("seconds"), found)
        raise RuntimeError("a trainer has ended, see its last lines above")

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield one comparison per size; its two processes end when the next one is requested."""
    for name in names:
        size = name.removeprefix("training/")
        async with AsyncExitStack() as stack:
            norms: list[float] = []
            processes = {}
            for trainer in TRAINERS:
                processes[trainer] = await Process.start(trainer, size)
                stack.push_async_callback(processes[trainer].end)
            yield Comparison(
                name=name,
                peer=f"GRPOTrainer of TRL {version('trl')}",
                unit="steps/s",
                measure_own=partial(_first, processes["own"], norms),
                measure_peer=partial(_second, processes["bare"], norms),
                limit=_limit(WORKLOADS[size]),
            )


async def _first(process: Process, norms: list[float]) -> Run:
    run = await process.step()
    norms.append(run.others[NORM])
    return run


async def _second(process: Process, norms: list[float]) -> Run:
    """Take the peer's step of a pair; raises RuntimeError if the two have not taken the same step."""
    run, own = await process.step(), norms.pop()
    if abs(run.others[NORM] - own) > 0.01 * own:
        raise RuntimeError(f"the gradient norms differ: ours is {own:.4f}, TRL's {run.others[NORM]:.4f}")
    return run


def _limit(workload: Workload) -> Limit:
    import torch

    torch.set_num_threads(1)
    wide = torch.ones(1024, 1024)
    seconds = []
    for _ in range(5):
        started = time.process_time()
        wide @ wide
        seconds.append(time.process_time() - started)
    flops = 2 * 1024**3 / min(seconds)
    groups = rollouts_of(workload)
    tokens = sum(len(group[0].prompt) + sum(len(one.completion) for one in group) for group in groups)
    with torch.device("meta"):
        parameters = sum(one.numel() for one in model_of(workload).parameters())
    why = f"6 x {parameters:,} parameters x {tokens:,} tokens at {flops / 1e9:.0f} GFLOP/s"
    return Limit(rate=flops / (6 * parameters * tokens), why=why)


SUITE = peers.Suite(names=[f"training/{size}" for size in WORKLOADS], open=comparisons)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
