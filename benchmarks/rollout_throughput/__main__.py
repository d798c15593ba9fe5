"""Trajectories per second of our engine, compared with TRL's tool loop, verl's agent loop and verifiers.

    OMP_NUM_THREADS=1 python -m benchmarks.rollout_throughput
    OMP_NUM_THREADS=1 .venv-NAME/bin/python -m benchmarks.rollout_throughput --only 'rollouts/NAME/*'

NAME is verl or verifiers, in the environment that `.ci/frameworks install NAME` makes. All have the same
weights, prompts, programs and sandbox, and the model writes the same tokens, which is checked after every
run. A rollout is one program between two turns. The programs of a comparison sleep for 0, 50 or 500 ms, or
for lognormal durations with a heavy tail (median 50 ms, sigma 1.5, seed 0). The model has the miniature's
shape and learns its dialogues first.

TRL generates with transformers' `generate`, its default; verl has a stand-in for its model server that
samples with our generator, so its loop alone is compared. verifiers starts a process for each rollout,
which is measured with the rest, and gets its tokens from our generator over HTTP, see `verifiers_loop.py`.

The share of time in which no token is generated is that in which the model waits for programs and for the
loop. The limit is the generation alone, with outputs given at once, or the longest program if it is longer.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Unavailable
from benchmarks.rollout_throughput.dialogues import (
    SLEEPS,
    TASKS,
    Answering,
    Dialogue,
    Slowed,
    Tokens,
    Workload,
    batch,
    memorised,
    rolled_out,
)
from benchmarks.rollout_throughput.loops import LOOPS, Loop
from tirjudge_environments import Transcript
from tirjudge_sandbox import open_sandbox

TAIL = "tail"
WAITED = "share of time without generation"


def durations(name: str, size: int) -> list[float]:
    """Return the seconds that the programs of a batch sleep, in the order in which they start."""
    if name != TAIL:
        return SLEEPS[name] * size
    draw = random.Random(0)
    return [draw.lognormvariate(-3.0, 1.5) for _ in range(size)]  # exp(-3.0) is 50 ms


async def own_run(workload: Workload, dialogues: Sequence[Dialogue], sandbox: Any) -> Run:
    """Measure our engine on a batch."""
    workload.generator.weights_changed()  # drops the KV cache, which would favour a later run
    busy, started = workload.generator.busy_seconds, time.perf_counter()
    trajectories = await rolled_out(workload, dialogues, sandbox)
    seconds = time.perf_counter() - started
    generated = workload.generator.busy_seconds - busy
    scripts = [Transcript.of(one) for one in trajectories]
    found = [Tokens.of(one.prompt_ids, one.completion_ids, one.mask) for one in scripts]
    return _checked(workload, dialogues, found, seconds, generated)


async def peer_run(workload: Workload, loop: Loop, dialogues: Sequence[Dialogue], sandbox: Any) -> Run:
    """Measure another loop on a batch."""
    workload.generator.weights_changed()
    busy, started = loop.busy_seconds(), time.perf_counter()
    found = await loop.roll_out(dialogues, sandbox)
    seconds = time.perf_counter() - started
    return _checked(workload, dialogues, found, seconds, loop.busy_seconds() - busy)


def _checked(
    workload: Workload,
    dialogues: Sequence[Dialogue],
    found: Sequence[Tokens],
    seconds: float,
    generated: float,
) -> Run:
    """Return the run; raises RuntimeError if a prompt or what the model wrote is not as in all other runs."""
    for dialogue, tokens in zip(dialogues, found, strict=True):
        if tokens != workload.expected(dialogue):
            texts = [workload.tokenizer.decode(ids) for ids in (tokens.prompt, tokens.written)]
            raise RuntimeError(f"case {dialogue.task.id} differs: prompt {texts[0]!r}, written {texts[1]!r}")
    return Run(len(found) / seconds, {WAITED: max(0.0, 1 - generated / seconds)})


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons; the model learns its dialogues before the first of them."""
    missing = {name for name in LOOPS if find_spec(name) is None}
    for name in names:
        if name.split("/")[1] in missing:
            yield Unavailable(name, f"not installed; .ci/frameworks install {name.split('/')[1]}")
    names = [name for name in names if name.split("/")[1] not in missing]
    if not names:
        return
    torch.set_num_threads(1)
    workload = memorised([Dialogue.number(i) for i in range(TASKS)], options.model)
    dialogues = batch(workload, options.rollouts)
    async with AsyncExitStack() as stack:
        # A sleeping program takes no CPU time, so as many run as there are rollouts.
        sandbox = await stack.enter_async_context(
            open_sandbox("local", preload=(), capacity=options.rollouts)
        )
        generation = [
            (await own_run(workload, dialogues, Answering(workload.dialogues))).rate for _ in range(3)
        ]
        loops = {
            loop: await stack.enter_async_context(LOOPS[loop](workload))
            for loop in dict.fromkeys(name.split("/")[1] for name in names)
        }
        for name in names:
            _, loop, sleep = name.split("/")
            slept = durations(sleep, len(dialogues))
            fastest = min(max(generation), len(dialogues) / max(max(slept), 1e-9))
            yield Comparison(
                name=name,
                peer=loops[loop].name,
                unit="trajectories/s",
                # A new wrapper for every run, so that each starts with the first duration.
                measure_own=partial(_slowed, partial(own_run, workload, dialogues), sandbox, slept),
                measure_peer=partial(
                    _slowed, partial(peer_run, workload, loops[loop], dialogues), sandbox, slept
                ),
                limit=Limit(rate=fastest, why="generation alone, or the longest program"),
            )
        await workload.generator.close()


async def _slowed(run: Any, sandbox: Any, slept: Sequence[float]) -> Run:
    measured: Run = await run(Slowed(sandbox, slept))
    return measured


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=16, help="rollouts of a batch")
    parser.add_argument("--model", type=Path, help="folder that keeps the trained model for the next run")


SUITE = peers.Suite(
    names=[f"rollouts/{loop}/{sleep}" for loop in LOOPS for sleep in (*SLEEPS, TAIL)],
    open=comparisons,
    options=_options,
)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
