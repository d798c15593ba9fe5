"""Rows judged per second on a CPU, compared with transformers' `generate` and with llama.cpp.

    OMP_NUM_THREADS=1 python -m benchmarks.judging_speed ROWS.jsonl
    OMP_NUM_THREADS=1 python -m benchmarks.judging_speed ROWS.jsonl --counts 1 16 --gguf FILE

All judge the first 1, 16 and 64 rows as pairs, greedily, with the same model, prompts, sandbox and budget:

* `one process` and `two processes`: the generator `transformers` of this package;
* `openvino` and `openvino, threads: 1`: the generator `openvino`, by default with a thread for each core;
* `generate`: transformers' own `generate` on one left-padded batch of the rows that still run; then their
  programs run, and the rows continue as a new batch, from their whole text;
* `llama.cpp` (package llama-cpp-python, with `--gguf`, which takes several files): base weights as the file
  holds them, so it is fed the very tokens that `one process` wrote, all rows in one batch, with one
  thread and with two. No program runs here. The last column is the share of tokens that it would have chosen.

Each figure is the median of `--repeats` rounds, in which the generators take turns, and the number of rows
whose verdict is that of `one process`. Loading is not counted. MODEL is what `--model` accepts; with `smol`,
the base model, llama.cpp computes the same.

llama.cpp converts a file to bfloat16, in which the other generators compute:

    python -c 'import ctypes, llama_cpp; p = llama_cpp.llama_model_quantize_default_params()
    p.ftype, p.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, True
    llama_cpp.llama_model_quantize(b"FROM.gguf", b"TO.gguf", ctypes.byref(p))'
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.smol.sources import read_lines
from tirjudge.generation.base import Generator, Sampling
from tirjudge.generation.local.openvino import OpenvinoGenerator
from tirjudge.generation.local.processes import ProcessesGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.models import resolve_model
from tirjudge.models.resolve import embedded_model, read_note
from tirjudge.rollout import Rollout
from tirjudge_environments import Completion, Environment, Finish, JudgeTask, Trajectory, Usage
from tirjudge_environments.registry import open_environment
from tirjudge_environments.session import JudgeSession, Transcript
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import Budget
from tirjudge_sandbox import Sandbox, open_sandbox

Judged = list[Trajectory]
Way = Callable[[Sequence[JudgeTask]], Awaitable[Judged]]

LLAMA_CONTEXT = 1024
"""Tokens of a row's cache in llama.cpp: more than any row of the evaluation sets needs."""


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


class LlamaCpp:
    """The way of llama.cpp: fed the tokens of dialogues that are judged already, all rows in one batch.

    Programs do not run again. Each of the `rows` sequences has a cache of its own. `chosen` counts the fed
    tokens that llama.cpp had chosen too, of `fed`.
    """

    def __init__(self, file: str, threads: int, rows: int, judged: Callable[[], Judged]) -> None:
        import llama_cpp

        self._llama, self._judged = llama_cpp, judged
        self._silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._silent, None)  # it prints hundreds of lines about the file
        model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max, params.n_ctx = rows, rows * LLAMA_CONTEXT
        params.n_threads = params.n_threads_batch = threads
        self._context = model and llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit(f"{file}: llama.cpp cannot load this file")
        self._words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._room = params.n_batch
        self._batch = llama_cpp.llama_batch_init(self._room, 0, 1)
        self._expected: list[
            tuple[int, int]
        ] = []  # the places in the batch before an own token, and that token
        self.chosen = self.fed = 0

    async def judge(self, tasks: Sequence[JudgeTask]) -> Judged:
        """Feed every row its next piece, then the next one, until all dialogues have ended."""
        dialogues = self._judged()[: len(tasks)]
        self._llama.llama_memory_clear(self._llama.llama_get_memory(self._context), True)
        positions = [0] * len(dialogues)
        for column in itertools.zip_longest(*(pieces(Transcript.of(dialogue)) for dialogue in dialogues)):
            for row, (piece, following) in ((row, piece) for row, piece in enumerate(column) if piece):
                for token in piece:
                    self._add(token, row, positions[row])
                    positions[row] += 1
                self._batch.logits[self._batch.n_tokens - 1] = True
                self._expected.append((self._batch.n_tokens - 1, following))
            self._decode()
        return dialogues

    def _add(self, token: int, row: int, position: int) -> None:
        if self._batch.n_tokens == self._room:
            self._decode()
        batch, at = self._batch, self._batch.n_tokens
        batch.token[at], batch.pos[at], batch.logits[at] = token, position, False
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, row
        batch.n_tokens += 1

    def _decode(self) -> None:
        if code := self._llama.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode ended with {code}")
        for at, token in self._expected:
            logits = self._llama.llama_get_logits_ith(self._context, at)
            self.chosen += int(np.ctypeslib.as_array(logits, (self._words,)).argmax()) == token
        self.fed += len(self._expected)
        self._expected.clear()
        self._batch.n_tokens = 0


def pieces(transcript: Transcript) -> Iterator[tuple[list[int], int]]:
    """Yield the tokens that go in at once, and the model's own token that follows them."""
    piece = list(transcript.prompt_ids)
    for token, own in zip(transcript.completion_ids, transcript.mask, strict=True):
        if own:
            yield piece, token
            piece = []
        piece.append(token)


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
    fast = {
        name: OpenvinoGenerator.load(folder, max_rows=64, threads=threads)
        for name, threads in (("openvino", None), ("openvino, threads: 1", 1))
    }
    async with open_sandbox("local") as sandbox:
        ours: Judged = []
        ways: dict[str, Way] = {
            "one process": with_rollout(environment, one, sandbox, budget),
            "two processes": with_rollout(environment, two, sandbox, budget),
            "generate": with_generate(environment, one, sandbox, budget),
        } | {name: with_rollout(environment, generator, sandbox, budget) for name, generator in fast.items()}
        llamas = {
            f"llama.cpp, {Path(file).stem}, threads: {threads}": LlamaCpp(
                file, threads, len(tasks), lambda: ours
            )
            for file in options.gguf
            for threads in (1, 2)
        }
        ways |= {name: llama.judge for name, llama in llamas.items()}
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
                llama = llamas.get(name)
                agreement = (
                    f"same token {llama.chosen / llama.fed:.1%}"
                    if llama
                    else f"same verdict {same} of {count}"
                )
                print(
                    f"{count:3} rows  {name:14} {rate:7.3f} rows/s  {rate / first:5.2f} x one process  "
                    f"[{min(measured):.3f}, {max(measured):.3f}]  {agreement}",
                    flush=True,
                )
    for generator in (one, two, *fast.values()):
        await generator.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", type=Path, help="a file of rows with a prompt and two responses")
    parser.add_argument("--model", default="", help="what `--model` of tirjudge accepts; default: embedded")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 16, 64], help="rows judged at once")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--gguf", nargs="+", default=[], help="GGUF files, to measure llama.cpp too")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
