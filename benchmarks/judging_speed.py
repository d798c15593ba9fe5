"""Rows judged per second on a CPU, compared with transformers' `generate` and with llama.cpp.

    OMP_NUM_THREADS=1 python -m benchmarks.judging_speed ROWS.jsonl
    OMP_NUM_THREADS=1 python -m benchmarks.judging_speed ROWS.jsonl --counts 1 16 --gguf FILE

All judge the first 1, 16 and 64 rows as pairs, greedily, with the same model, prompts, sandbox and budget:

* `one process` and `two processes`: the generator `transformers` of this package;
* `generate`: transformers' own `generate` on one left-padded batch of the rows that still run; then their
  programs run, and the rows continue as a new batch, from their whole text;
* `llama.cpp` (package llama-cpp-python, with `--gguf`): base weights as the file holds them, so it is fed the
  very tokens that the first generator wrote, one row after the other, as its Python interface offers it.

Each figure is the median of `--repeats` rounds, in which the generators take turns, and the number of rows
whose verdict is that of `one process`. Loading is not counted. MODEL is what `--model` accepts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.smol.sources import read_lines
from tirjudge.generation.base import Generator, Sampling
from tirjudge.generation.local.processes import ProcessesGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.model_folder import embedded_model, read_note
from tirjudge.models import resolve_model
from tirjudge.rollout import Rollout
from tirjudge_environments import Completion, Environment, Finish, JudgeTask, Trajectory, Usage
from tirjudge_environments.registry import open_environment
from tirjudge_environments.session import JudgeSession, Transcript
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Sandbox, open_sandbox

Judged = list[Trajectory]
Way = Callable[[Sequence[JudgeTask]], Awaitable[Judged]]


def with_rollout(environment: Environment, generator: Generator, sandbox: Sandbox, budget: Budget) -> Way:
    """Return the way of this package: continuous batching, while programs run."""
    rollout = Rollout(
        environment,
        generator,
        sandbox,
        budget=budget,
        sampling=Sampling(temperature=0, max_tokens=budget.tokens),
    )

    async def judge(tasks: Sequence[JudgeTask]) -> Judged:
        return await asyncio.gather(*(rollout.trajectory(task, environment.views(task)[0]) for task in tasks))

    return judge


def with_generate(
    environment: Environment, local: TransformersGenerator, sandbox: Sandbox, budget: Budget
) -> Way:
    """Return the loop around transformers' `generate`: a turn of all rows, then their programs."""

    async def judge(tasks: Sequence[JudgeTask]) -> Judged:
        sessions = [
            JudgeSession(
                environment, task, environment.views(task)[0], sandbox, encoder=local.encoder, budget=budget
            )
            for task in tasks
        ]
        while running := [session for session in sessions if not session.done]:
            completions = _generate(local, running)
            await asyncio.gather(
                *(session.step(done) for session, done in zip(running, completions, strict=True))
            )
        return [session.trajectory for session in sessions]

    return judge


def _generate(local: TransformersGenerator, sessions: Sequence[JudgeSession]) -> list[Completion]:
    import torch

    model, tokenizer = local._network, local.encoder._tokenizer
    contexts = [list(session.context.ids or ()) for session in sessions]
    longest = max(map(len, contexts))
    stop = sessions[0].context.prompt.stop
    with torch.inference_mode():
        rows = model.generate(
            torch.tensor([[0] * (longest - len(ids)) + ids for ids in contexts]),
            attention_mask=torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in contexts]),
            max_new_tokens=min(session.remaining_tokens for session in sessions),
            do_sample=False,
            pad_token_id=0,
            **({"stop_strings": list(stop), "tokenizer": tokenizer} if stop else {}),
        )
    return [
        _completion(local, row[longest:].tolist(), len(ids), stop)
        for row, ids in zip(rows, contexts, strict=True)
    ]


def _completion(
    local: TransformersGenerator, written: list[int], prompt_tokens: int, stop: tuple[str, ...]
) -> Completion:
    """Cut a row of the batch where it ended: the batch goes on until its last row ends."""
    ids, finish = written, Finish.LENGTH
    for number, token in enumerate(written, 1):
        if token in local.encoder.end_of_turn:
            ids, finish = written[:number], Finish.END
            break
        if any(string in local.encoder.decode(written[:number]) for string in stop):
            ids, finish = written[:number], Finish.STOP
            break
    usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=len(ids))
    return Completion(text=local.encoder.decode(ids), finish=finish, token_ids=tuple(ids), usage=usage)


def with_llama_cpp(file: str, judged: Callable[[], Judged]) -> Way:
    """Return a way that feeds llama.cpp the tokens of dialogues that are judged already."""
    from llama_cpp import Llama

    llama = Llama(file, n_ctx=4096, n_threads=1, n_threads_batch=1, verbose=False)

    async def judge(tasks: Sequence[JudgeTask]) -> Judged:
        dialogues = judged()[: len(tasks)]
        for dialogue in dialogues:
            transcript = Transcript.of(dialogue)
            llama.reset()
            llama.eval(list(transcript.prompt_ids))
            given: list[int] = []
            for token, own in zip(transcript.completion_ids, transcript.mask, strict=True):
                if not own:
                    given.append(token)  # a program's output is fed in one piece
                    continue
                llama.eval([*given, token])
                given = []
        return dialogues

    return judge


async def measure(options: argparse.Namespace) -> None:
    """Print one line per number of rows and way."""
    folder = resolve_model(options.model or embedded_model())
    note = read_note(folder)
    environment = open_environment(
        "tir-pairwise", prompts=note.prompts or "tir", shown_chars=note.shown_chars, order="given"
    )
    budget = Budget(turns=6, tool_calls=3, tokens=note.max_tokens or 512)
    tasks = [
        read_task(row, default_id=str(number))
        for number, row in enumerate(read_lines(options.rows)[: max(options.counts)])
    ]
    one = TransformersGenerator.load(folder, max_rows=64)
    two = ProcessesGenerator(folder, processes=2, max_rows=64)
    async with open_sandbox("local") as sandbox:
        ours: Judged = []
        ways: dict[str, Way] = {
            "one process": with_rollout(environment, one, sandbox, budget),
            "two processes": with_rollout(environment, two, sandbox, budget),
            "generate": with_generate(environment, one, sandbox, budget),
        }
        if options.gguf:
            ways["llama.cpp"] = with_llama_cpp(options.gguf, lambda: ours)
        for way in ways.values():
            await way(tasks[:1])  # warms up
            ours = ours or await ways["one process"](tasks[:1])
        for count in options.counts:
            rates: dict[str, list[float]] = {name: [] for name in ways}
            verdicts: dict[str, list[Any]] = {}
            for _ in range(options.repeats):
                for name, way in ways.items():
                    started = time.perf_counter()
                    judged = await way(tasks[:count])
                    rates[name].append(count / (time.perf_counter() - started))
                    if name == "one process":
                        ours = judged
                    verdicts[name] = [trajectory.verdict for trajectory in judged]
            first = statistics.median(rates["one process"])
            for name, measured in rates.items():
                rate = statistics.median(measured)
                same = sum(a == b for a, b in zip(verdicts[name], verdicts["one process"], strict=True))
                print(
                    f"{count:3} rows  {name:14} {rate:7.3f} rows/s  {rate / first:5.2f} x one process  "
                    f"[{min(measured):.3f}, {max(measured):.3f}]  same verdict {same} of {count}",
                    flush=True,
                )
    await one.close()
    await two.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", type=Path, help="a file of rows with a prompt and two responses")
    parser.add_argument("--model", default="", help="what `--model` of tirjudge accepts; default: embedded")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 16, 64], help="rows judged at once")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--gguf", default="", help="a GGUF file, to measure llama.cpp too")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
