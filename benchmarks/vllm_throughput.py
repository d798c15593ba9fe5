"""Trajectories per second with tirjudge's own generator, compared with vLLM's engine on a CPU.

    . .venv-vllm/bin/activate
    export OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
    python -m benchmarks.vllm_throughput

Both run in this package's engine and have the same weights: the miniature's shape, trained to write a few
dialogues, so that its programs are real. The programs sleep for 0, 50 and 500 ms.

The limit is the generation alone by the faster of the two, or the longest program if it is longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
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
    Workload,
    batch,
    memorised,
    rolled_out,
)
from tirjudge.generation.vllm import VllmGenerator
from tirjudge_sandbox import open_sandbox

CPU = {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False}


async def rate(
    workload: Workload, dialogues: Sequence[Dialogue], generator: Any, sandbox: Any, slept: Sequence[float]
) -> Run:
    """Measure a generator on a batch; it starts with an empty cache."""
    if isinstance(generator, VllmGenerator):
        await generator.load_weights(Path(generator.model))
    else:
        generator.weights_changed()
    started = time.perf_counter()
    trajectories = await rolled_out(workload, dialogues, Slowed(sandbox, slept), generator)
    seconds = time.perf_counter() - started
    ran = sum(len(one.calls) > 0 for one in trajectories) / len(trajectories)
    return Run(len(trajectories) / seconds, {"share with a program": ran})


async def comparisons(
    names: Sequence[str], options: argparse.Namespace
) -> AsyncIterator[Comparison | Unavailable]:
    """Yield the comparisons; the model learns its dialogues before the first of them."""
    if find_spec("vllm") is None:
        yield Unavailable("vllm/*", "not installed; .ci/vllm install")
        return
    torch.set_num_threads(1)
    workload = memorised([Dialogue.number(i) for i in range(TASKS)], options.model)
    dialogues = batch(workload, options.rollouts)
    with TemporaryDirectory() as folder:
        workload.model.save_pretrained(folder)
        workload.tokenizer.save_pretrained(folder)
        vllm = VllmGenerator.load(folder, **CPU)
        async with open_sandbox("local", preload=(), capacity=options.rollouts) as sandbox:
            given = Answering(workload.dialogues)
            generators = workload.generator, vllm
            alone = [(await rate(workload, dialogues, one, given, [0.0])).rate for one in generators]
            for name in names:
                (slept,) = SLEEPS[name.removeprefix("vllm/")]
                own, peer = (partial(rate, workload, dialogues, one, sandbox, [slept]) for one in generators)
                yield Comparison(
                    name=name,
                    peer=f"vLLM {version('vllm-cpu')}",
                    unit="trajectories/s",
                    measure_own=own,
                    measure_peer=peer,
                    limit=Limit(
                        rate=min(max(alone), len(dialogues) / max(slept, 1e-9)),
                        why="generation alone, or the longest program",
                    ),
                )
        await vllm.close()
    await workload.generator.close()


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rollouts", type=int, default=64, help="rollouts of a batch")
    parser.add_argument("--model", type=Path, help="folder that keeps the trained model for the next run")


SUITE = peers.Suite(names=[f"vllm/{sleep}" for sleep in SLEEPS], open=comparisons, options=_options)

if __name__ == "__main__":
    raise SystemExit(peers.main(SUITE, __doc__))
