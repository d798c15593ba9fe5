"""Rollouts per second with programs that overlap generation, compared with a synchronous tool loop.

    OMP_NUM_THREADS=1 python -m benchmarks.rollout_throughput

Both use the same weights, batch and sandbox. The synchronous schedule is the common one: generate a turn of
every row, run the programs one after another, and only then generate again. The model has the miniature's
shape and memorises a few dialogues first (about half a minute), so that its programs are real.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.generation_throughput import miniature
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import JudgeTask, Message, Trajectory
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_sandbox import Sandbox, open_sandbox

JUDGE = TirPairwise(order="given")
SAMPLING = Sampling(temperature=1.0, max_tokens=200)
ANSWER = "So A.\n<preference>A</preference>"
OUTPUT = "```output\n3\n```\n"


@dataclass(frozen=True)
class Dialogue:
    """A task and the turn that the model memorises for it: reasoning of a distinct length, then a program."""

    task: JudgeTask
    program: str

    @classmethod
    def number(cls, i: int, milliseconds: int) -> Dialogue:
        """Return dialogue `i`, whose program computes for some milliseconds of CPU time."""
        words = " ".join(f"w{i}" for _ in range(3 + 4 * i))
        work = f"import time\nend = time.process_time() + {milliseconds / 1000}\n"
        work += "while time.process_time() < end: pass\n" if milliseconds else ""
        task = JudgeTask(id=str(i), prompt=(Message("user", f"Case {i}."),), candidates=("a b c", "a b"))
        return cls(task, f"{words}\n```python\n{work}print(len(response_a.split()))\n```\n")


def memorised(dialogues: list[Dialogue]) -> TransformersGenerator:
    """Return a generator whose model was trained until it reproduces the dialogues."""
    texts = [JUDGE.prompt(d.task, JUDGE.views(d.task)[0]).messages[0].content for d in dialogues]
    tokenizer = bpe_tokenizer(*texts, *(d.program for d in dialogues), ANSWER, OUTPUT, vocab_size=1024)
    encoder, model = ChatEncoder(tokenizer), miniature(initializer_range=0.08)
    rows = [row(encoder, dialogue) for dialogue in dialogues]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss = torch.tensor(1.0)
    while loss > 0.01:
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return TransformersGenerator(model.eval(), tokenizer, name="memorised")


def row(encoder: ChatEncoder, dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Return token ids and labels; -100 masks the prompt and the program's output."""
    prompt = encoder.prompt(JUDGE.prompt(dialogue.task, JUDGE.views(dialogue.task)[0]))
    answer = [*encoder.text(ANSWER), *encoder.end_of_turn]
    parts = [prompt, encoder.text(dialogue.program), encoder.text(OUTPUT), answer]
    labels = [token if i in (1, 3) else -100 for i, part in enumerate(parts) for token in part]
    return [token for part in parts for token in part], labels


async def overlapped(
    dialogues: list[Dialogue], size: int, generator: TransformersGenerator, sandbox: Sandbox
) -> list[Trajectory]:
    """Roll out with tirjudge's engine: each dialogue goes on as soon as its program has ended."""
    rollout = Rollout(JUDGE, generator, sandbox, sampling=SAMPLING)
    groups = await asyncio.gather(*(rollout.group(d.task, size) for d in dialogues))
    return [trajectory for group in groups for episode in group for trajectory in episode.trajectories]


async def synchronous(
    dialogues: list[Dialogue], size: int, generator: TransformersGenerator, sandbox: Sandbox
) -> list[Trajectory]:
    """Roll out in lockstep: all turns are generated, then all programs run one after another."""
    sessions = [
        JudgeSession(JUDGE, d.task, JUDGE.views(d.task)[0], sandbox, encoder=generator.encoder, sample=i)
        for d in dialogues
        for i in range(size)
    ]
    while running := [session for session in sessions if not session.done]:
        turns = await asyncio.gather(*(generator.generate(s.context, SAMPLING) for s in running))
        for session, turn in zip(running, turns, strict=True):
            await session.step(turn)
    return [session.trajectory for session in sessions]


async def measured(schedule: Any, *args: Any) -> tuple[float, list[Trajectory]]:
    """Return trajectories per second of a schedule, and the trajectories."""
    args[2].weights_changed()  # empties the KV cache, which would favour the second run
    started = time.perf_counter()
    trajectories = await schedule(*args)
    return len(trajectories) / (time.perf_counter() - started), trajectories


async def main() -> None:
    """Print the rates of both schedules for every repeat, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=8, help="number of tasks")
    parser.add_argument("--size", type=int, default=16, help="rollouts per task")
    parser.add_argument("--milliseconds", type=int, default=10, help="CPU time of each program")
    parser.add_argument("--repeats", type=int, default=5, help="alternating runs of both schedules")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dialogues = [Dialogue.number(i, options.milliseconds) for i in range(options.tasks)]
    generator = memorised(dialogues)
    ratios = []
    async with open_sandbox("local", preload=()) as sandbox:
        for _ in range(options.repeats):
            rate, trajectories = await measured(overlapped, dialogues, options.size, generator, sandbox)
            slow, _ = await measured(synchronous, dialogues, options.size, generator, sandbox)
            ratios.append(rate / slow)
            tokens = rate * statistics.mean(t.usage.completion_tokens for t in trajectories)
            calls = sum(len(t.calls) for t in trajectories)
            print(
                f"{rate:6.1f} rollouts/s overlapped ({tokens:.0f} tok/s, {calls} programs for "
                f"{len(trajectories)} rollouts)  {slow:6.1f} synchronous  ratio {rate / slow:.2f}"
            )
    await generator.close()
    print(
        f"median ratio of {len(ratios)}: {statistics.median(ratios):.2f}, "
        f"{options.milliseconds} ms per program"
    )


if __name__ == "__main__":
    asyncio.run(main())
