"""Dialogues of one program each, a model that has memorised them, and our engine's rollouts of them.

The model calls the tool as Qwen2.5's chat template describes it, which the other loops parse too, so that all
loops get the same prompts, the same tokens of the model and the same programs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from transformers.utils import get_json_schema

from benchmarks.generation_throughput import miniature
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation import Sampling
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import Completion, JudgeTask, Message, Prompt, Trajectory, View
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_environments.types import (
    Continue,
    Episode,
    Finish,
    Question,
    Reading,
    Refused,
    RunCode,
    Score,
    Verdict,
)
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status

SYSTEM = "You are a judge."
ANSWER = "So A."
TASKS = 4
"""Dialogues that the model memorises."""
LONGEST = 200
"""The most tokens of a turn."""
SLEEPS = {"0ms": [0.0], "50ms": [0.05], "500ms": [0.5]}
"""Seconds that the programs of a comparison sleep."""
SAMPLING = Sampling(temperature=0, max_tokens=LONGEST)


def python_tool(run: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function `run_python(code)` whose schema is the same in every loop.

    It has no return type, which would be in the prompts of some loops alone.
    """

    def run_python(code: str):  # type: ignore[no-untyped-def]
        """Run a Python program and return what it prints.

        Args:
            code: The program.
        """
        return run(code)

    return run_python


SCHEMA: dict[str, Any] = get_json_schema(python_tool(str))


class ToolCalls:
    """A judge format whose programs are tool calls in the text, as Qwen2.5 writes them."""

    linked = False

    def __init__(self, system: str) -> None:
        """`system` is the system message that describes the tool."""
        self._system = system

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return (View("AB", (0, 1)),)

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        return Prompt(messages=(Message("system", self._system), *task.prompt))

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        _, opened, call = completion.text.partition("<tool_call>")
        if completion.finish is Finish.LENGTH:
            return Continue()
        if opened:
            return RunCode(json.loads(call.partition("</tool_call>")[0])["arguments"]["code"])
        return Verdict(choice=0)

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        assert isinstance(outcome, Execution), outcome
        return f"\n<tool_response>\n{outcome.stdout.strip()}\n</tool_response>\n"

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        return ()

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        raise NotImplementedError("rollouts are not scored here")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A task, and the turn that the model memorises for it: words, as many as no other has, and a program."""

    task: JudgeTask
    program: str
    turn: str

    @classmethod
    def number(cls, i: int) -> Dialogue:
        words = " ".join(f"w{i}{chr(97 + j)}" for j in range(3 + 7 * i))
        program = f"print({i} + 3)"
        call = json.dumps({"name": "run_python", "arguments": {"code": program}})
        task = JudgeTask(id=str(i), prompt=(Message("user", f"Case {i}."),), candidates=("a b c", "a b"))
        return cls(task, program, f"{words}\n<tool_call>\n{call}\n</tool_call>")

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as other loops get it; they describe the tool in the system message themselves."""
        user = [{"role": one.role, "content": one.content} for one in self.task.prompt]
        return [{"role": "system", "content": SYSTEM}, *user]

    @property
    def output(self) -> str:
        return str(int(self.task.id) + 3)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A rollout as token ids, without the outputs of its programs."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]

    @classmethod
    def of(cls, prompt: Sequence[int], completion: Sequence[int], mask: Sequence[int]) -> Tokens:
        """Return the tokens of a completion whose mask is 1 where the model wrote."""
        return cls(tuple(prompt), tuple(token for token, own in zip(completion, mask, strict=True) if own))


@dataclass(frozen=True, slots=True)
class Workload:
    """Dialogues, the model that writes them, and the format that reads them."""

    dialogues: Sequence[Dialogue]
    environment: ToolCalls
    generator: TransformersGenerator
    tokenizer: Any
    model: Any

    def expected(self, dialogue: Dialogue) -> Tokens:
        """Return the prompt of a dialogue and what the model writes in both of its turns."""
        encoder, end = self.generator.encoder, self.tokenizer.eos_token_id
        prompt = self.environment.prompt(dialogue.task, self.environment.views(dialogue.task)[0])
        written = (*encoder.text(dialogue.turn), end, *encoder.text(ANSWER), end)
        return Tokens(tuple(encoder.prompt(prompt)), written)


class Slowed:
    """A sandbox whose programs sleep first: the first for the first of some durations, and so on."""

    def __init__(self, sandbox: Sandbox, seconds: Sequence[float]) -> None:
        self._sandbox, self._seconds = sandbox, cycle(seconds)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        slept = next(self._seconds)
        source = f"import time\ntime.sleep({slept})\n{program.source}" if slept else program.source
        return await self._sandbox.run(replace(program, source=source), limits)


class Answering:
    """A stand-in for a sandbox that knows the output of every program."""

    def __init__(self, dialogues: Sequence[Dialogue]) -> None:
        self._outputs = {one.program: one.output for one in dialogues}

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        return Execution(status=Status.OK, stdout=f"{self._outputs[program.source]}\n")


def template() -> str:
    """Return TRL's copy of Qwen2.5's chat template.

    It is found by its path, since the environment of verl, whose TRL is older, lies over one that has it.
    """
    copies = (Path(folder) / "trl/chat_templates/qwen2_5.jinja" for folder in sys.path)
    return next(copy.read_text(encoding="utf-8") for copy in copies if copy.exists())


def memorised(dialogues: Sequence[Dialogue], folder: Path | None = None) -> Workload:
    """Train a model of the miniature's shape until it writes the dialogues; takes about half a minute.

    With a folder the trained model is stored there, or loaded if it is stored already. It learns each answer
    after both forms of the program's output: a tool message of the chat template, which the other loops
    insert, and plain text, which is all that our engine inserts.
    """
    tokenizer = bpe_tokenizer(
        template(), json.dumps(SCHEMA), *(one.turn for one in dialogues), ANSWER, vocab_size=1024
    )
    tokenizer.pad_token = "<|im_start|>"
    tokenizer.chat_template = template()
    rendered = tokenizer.apply_chat_template(
        [{"role": "system", "content": SYSTEM}], tools=[SCHEMA], tokenize=False
    )
    environment = ToolCalls(rendered.removeprefix("<|im_start|>system\n").partition("<|im_end|>")[0])
    encoder, model = ChatEncoder(tokenizer), miniature(initializer_range=0.08)
    rows = [row for one in dialogues for row in _rows(environment, encoder, tokenizer, one)]
    # Other dialogues, or another tokenizer, are another model.
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:12]
    file = None if folder is None else folder / f"memorised-{digest}.safetensors"
    if file is not None and file.exists():
        load_model(model, file)
    else:
        _learn(model, rows)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, str(file))
    generator = TransformersGenerator(model.eval(), tokenizer, name="memorised")
    return Workload(dialogues, environment, generator, tokenizer, model)


def _learn(model: Any, rows: Sequence[tuple[list[int], list[int]]]) -> None:
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    known = False
    while not known:
        output = model(ids, labels=labels)
        best, wanted = output.logits[:, :-1].argmax(-1), labels[:, 1:]
        # The loss leaves a margin for the last bits of the matrix products, which depend on the batch.
        known = output.loss < 0.02 and bool((best == wanted)[wanted != -100].all())
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()


def _rows(
    environment: ToolCalls, encoder: ChatEncoder, tokenizer: Any, dialogue: Dialogue
) -> list[tuple[list[int], list[int]]]:
    """Return token ids and labels for both forms of the output; -100 masks what the model does not write."""
    prompt = encoder.prompt(environment.prompt(dialogue.task, environment.views(dialogue.task)[0]))
    end = [tokenizer.eos_token_id]
    response = f"\n<tool_response>\n{dialogue.output}\n</tool_response>"
    message = f"\n<|im_start|>user{response}<|im_end|>\n<|im_start|>assistant\n"
    forms = (
        encoder.text(f"{response}\n"),
        tokenizer.encode(message, add_special_tokens=False),
    )
    rows = []
    for output in forms:
        parts = [prompt, [*encoder.text(dialogue.turn), *end], output, [*encoder.text(ANSWER), *end]]
        ids = [token for part in parts for token in part]
        labels = [token if i in (1, 3) else -100 for i, part in enumerate(parts) for token in part]
        rows.append((ids, labels))
    return rows


def batch(workload: Workload, size: int) -> list[Dialogue]:
    """Return the dialogues of a batch of rollouts, each task as often as any other."""
    return sorted(islice(cycle(workload.dialogues), size), key=lambda one: int(one.task.id))


async def rolled_out(
    workload: Workload, dialogues: Sequence[Dialogue], sandbox: Any, generator: Any = None
) -> list[Trajectory]:
    """Roll out with this package's engine: each dialogue goes on as soon as its program has ended."""
    rollout = Rollout(workload.environment, generator or workload.generator, sandbox, sampling=SAMPLING)
    view = workload.environment.views(dialogues[0].task)[0]
    return await asyncio.gather(
        *(rollout.trajectory(one.task, view, sample) for sample, one in enumerate(dialogues))
    )
