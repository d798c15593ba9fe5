"""Trajectories per second with vLLM and with tirjudge's own generator, for programs of several durations.

    . .venv-vllm/bin/activate
    export OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
    python -m benchmarks.vllm_throughput

Both have the same weights: the miniature's shape, trained to reproduce a few dialogues, so that its programs
are real. The programs sleep for their milliseconds instead of computing. vLLM is built for the CPU.
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

from benchmarks.rollout_throughput import Dialogue, memorised, overlapped
from tirjudge.generation.vllm import VllmGenerator
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, open_sandbox

CPU = {"dtype": "float32", "enforce_eager": True, "enable_chunked_prefill": False}


@dataclass
class Slowed:
    """A sandbox whose programs sleep first."""

    sandbox: Sandbox
    milliseconds: int

    async def run(self, program: Program, limits: Limits) -> Execution:
        source = f"import time\ntime.sleep({self.milliseconds / 1000})\n{program.source}"
        return await self.sandbox.run(replace(program, source=source), limits)


async def rate(dialogues: list[Dialogue], size: int, generator: Any, sandbox: Any) -> tuple[float, float]:
    """Return trajectories per second, and the share of trajectories that ran a program."""
    started = time.perf_counter()
    trajectories = await overlapped(dialogues, size, generator, sandbox)
    seconds = time.perf_counter() - started
    return len(trajectories) / seconds, statistics.mean(len(one.calls) > 0 for one in trajectories)


async def compare(generators: dict[str, Any], dialogues: list[Dialogue], options: Any) -> None:
    """Print the median rate of each generator for each duration; the generators alternate."""
    async with open_sandbox("local", preload=()) as sandbox:
        for milliseconds in options.milliseconds:
            rates: dict[str, list[float]] = defaultdict(list)
            slowed = Slowed(sandbox, milliseconds)
            for _ in range(options.repeats):
                for name, generator in generators.items():
                    await clear_cache(generator)
                    found, ran = await rate(dialogues, options.size, generator, slowed)
                    rates[name].append(found)
                    print(
                        f"{milliseconds:4} ms: {name:5} {found:6.2f}/s, {ran:.0%} with a program", flush=True
                    )
            medians = ", ".join(f"{name} {statistics.median(each):.2f}" for name, each in rates.items())
            load = os.getloadavg()[0]
            n = options.tasks * options.size
            print(
                f"{milliseconds} ms per program: {medians} trajectories/s (n = {n}, load {load:.1f})",
                flush=True,
            )


async def clear_cache(generator: Any) -> None:
    """Drop the keys and values of earlier rollouts, so that every run starts with an empty cache."""
    if isinstance(generator, VllmGenerator):
        await generator.load_weights(Path(generator.model))
    else:
        generator.weights_changed()


async def main() -> None:
    """Compare the two generators with the same weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--size", type=int, default=16, help="rollouts per task")
    parser.add_argument(
        "--milliseconds", type=int, nargs="+", default=[0, 50, 500], help="durations of the programs"
    )
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dialogues = [Dialogue.number(i, 0) for i in range(options.tasks)]
    own = memorised(dialogues)
    with TemporaryDirectory() as folder:
        own._network.save_pretrained(folder)
        own.encoder._tokenizer.save_pretrained(folder)
        vllm = VllmGenerator.load(folder, **CPU)
        await compare({"own": own, "vllm": vllm}, dialogues, options)
    await own.close()
    await vllm.close()


if __name__ == "__main__":
    asyncio.run(main())
