"""Trajectories a second from vLLM and from our own generator, with programs of several lengths.

    . .venv-vllm/bin/activate
    export OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
    python -m benchmarks.vllm_throughput

Both hold the same weights, of the miniature's shape, taught a few dialogues by heart so that its programs
are real; their milliseconds are slept, not computed. vLLM's build is that of a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.rollout_throughput import Dialogue, overlapped, taught
from tirjudge.generation.vllm import VllmGenerator
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox

CPU = {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False}


@dataclass
class Slowed:
    """A sandbox whose programs take longer."""

    sandbox: Sandbox
    milliseconds: int

    async def run(self, program: Program, limits: Limits) -> Execution:
        source = f"import time\ntime.sleep({self.milliseconds / 1000})\n{program.source}"
        return await self.sandbox.run(replace(program, source=source), limits)


async def rate(dialogues: list[Dialogue], size: int, generator: Any, sandbox: Any) -> tuple[float, float]:
    """Trajectories a second, and the share of them that ran their program."""
    started = time.perf_counter()
    trajectories = await overlapped(dialogues, size, generator, sandbox)
    seconds = time.perf_counter() - started
    return len(trajectories) / seconds, statistics.mean(len(one.calls) > 0 for one in trajectories)


async def compare(generators: dict[str, Any], dialogues: list[Dialogue], options: Any) -> None:
    async with open_sandbox("local", preload=()) as sandbox:
        for milliseconds in options.milliseconds:
            rates: dict[str, list[float]] = defaultdict(list)
            slowed = Slowed(sandbox, milliseconds)
            for _ in range(options.repeats):
                for name, generator in generators.items():
                    await forget(generator)
                    found, ran = await rate(dialogues, options.size, generator, slowed)
                    rates[name].append(found)
                    print(
                        f"{milliseconds:4} ms: {name:5} {found:6.2f}/s, {ran:.0%} with a program", flush=True
                    )
            medians = ", ".join(f"{name} {statistics.median(each):.2f}" for name, each in rates.items())
            load = os.getloadavg()[0]
            n = options.tasks * options.size
            print(
                f"{milliseconds} ms a program: {medians} trajectories/s (n = {n}, load {load:.1f})",
                flush=True,
            )


async def forget(generator: Any) -> None:
    """Keys and values of earlier rollouts."""
    if isinstance(generator, VllmGenerator):
        await generator.load_weights(Path(generator.model))
    else:
        generator.weights_changed()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--size", type=int, default=16, help="rollouts a task")
    parser.add_argument("--milliseconds", type=int, nargs="+", default=[0, 50, 500])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dialogues = [Dialogue.number(i, 0) for i in range(options.tasks)]
    ours = taught(dialogues)
    with TemporaryDirectory() as folder:
        ours._network.save_pretrained(folder)
        ours.encoder._tokenizer.save_pretrained(folder)
        vllm = VllmGenerator.load(folder, **CPU)
        await compare({"ours": ours, "vllm": vllm}, dialogues, options)
    await ours.close()
    await vllm.close()


if __name__ == "__main__":
    asyncio.run(main())
