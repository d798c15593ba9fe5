"""The warm-up corpus: short examples of programs and verdicts, and dialogues of the scripted teacher.

The dialogues are made with the session and the sandbox that judge later, so their form and all outputs are
real. Only words, thresholds and wordings of the training half are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from examples.miniature.constraints import CHECKABLE, FAMILIES, MANNERS, TRAIN, Shown
from examples.miniature.model import ENVIRONMENT
from examples.miniature.scripted_teacher import (
    DECISIVE,
    UNDECIDED,
    Habits,
    Teacher,
    answer,
    decided_position,
    program,
)
from examples.miniature.synthesis import train_task
from tirjudge.progress import ProgressReporter
from tirjudge_environments import (
    ChatEncoder,
    Completion,
    Finish,
    JudgeSession,
    Trajectory,
    derive_seed,
    open_environment,
)
from tirjudge_sandbox import Sandbox
from tirjudge_training.sft import Sample

SHOWN: dict[str, Shown] = {
    "tir-pairwise": "pairwise",
    "tir-pointwise": "pointwise",
    "tir-listwise": "listwise",
}
WEIGHTED = (*FAMILIES, *[family.name for family in MANNERS] * 3)
"""Families of the dialogues; those decided by reading have no short examples, so they come more often."""

QUESTIONS: dict[Shown, str] = {
    "pointwise": "How good is it?",
    "pairwise": "Which is better?",
    "listwise": "Which is best?",
}
"""The last words of the miniature's prompts."""


class CorpusConfig(BaseModel):
    """The size and the composition of the corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    programs: int = Field(default=26_000, ge=0)
    """Short examples of an instruction and its program, which teach to tell similar instructions apart."""
    readings: int = Field(default=10_000, ge=0)
    """Short examples of an output and its verdict; reading outputs is what a small model learns last."""
    dialogues: int = Field(default=12_000, ge=0)
    """Whole dialogues of the teacher."""
    text_only: float = Field(default=0.1, ge=0, le=1)
    """Share of the dialogues with prompts without tools; they end in the verdict of the label."""
    habits: Habits = Habits()

    @property
    def samples(self) -> int:
        return self.programs + self.readings + self.dialogues

    def for_share(self, no_tools: float) -> Self:
        """Return a corpus of the same size for a run with this share of tasks without tools.

        In a run without any tool there are no programs and outputs, so all samples are dialogues.
        """
        if no_tools < 1:
            return self.model_copy(update={"text_only": max(self.text_only, no_tools)})
        return self.model_copy(
            update={"programs": 0, "readings": 0, "dialogues": self.samples, "text_only": 1.0}
        )


async def corpus(
    tokenizer: Any,
    sandbox: Sandbox,
    config: CorpusConfig,
    seed: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[Sample]:
    """Return the samples in order, a function of tokenizer, configuration and seed.

    `say` receives lines of progress.
    """
    encoder, end = ChatEncoder(tokenizer), tokenizer.eos_token_id
    short = [
        Sample.answer(encoder, *program_example(config.habits, index, seed), end)
        for index in range(config.programs)
    ] + [Sample.answer(encoder, *reading_example(index, seed), end) for index in range(config.readings)]
    held = await dialogues(tokenizer, sandbox, config, seed, say)
    return short + [Sample.of(dialogue) for dialogue in held]


def program_example(habits: Habits, index: int, seed: int) -> tuple[str, str]:
    """Return an instruction with the number of responses, and the teacher's program."""
    rng = Random(derive_seed("program example", seed, index))
    family, shown = rng.choice(CHECKABLE), rng.choice(list(QUESTIONS))
    question = f"Instruction: {family.draw(rng, TRAIN).text}\n\nWrite a {shown} check."
    return question, _fenced(program(rng, habits, family, shown))


def reading_example(index: int, seed: int) -> tuple[str, str]:
    """Return a program's output with the question, and the verdict; three in four outputs are decisive."""
    rng = Random(derive_seed("reading example", seed, index))
    shown = rng.choice(list(QUESTIONS))
    decisive = "\n".join(rng.choice(DECISIVE[shown]))
    body = decisive if rng.random() < 0.75 else rng.choice(UNDECIDED[shown])
    output = f"```output\n{body}\n```\n"
    return f"{output}{QUESTIONS[shown]}", answer(rng, shown, decided_position(shown, output))


async def dialogues(
    tokenizer: Any,
    sandbox: Sandbox,
    config: CorpusConfig,
    seed: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[Trajectory]:
    """Return the teacher's dialogues, each on one view of a task of their own training stream."""
    progress = ProgressReporter(say, unit="dialogues written", total=config.dialogues)
    encoder = ChatEncoder(tokenizer)
    tools, text = (
        {format: open_environment(format, **ENVIRONMENT, tools=with_tools) for format in SHOWN}
        for with_tools in (True, False)
    )

    async def dialogue(index: int) -> Trajectory:
        rng = Random(derive_seed("warm-up dialogue", seed, index))
        formatted = train_task(index, derive_seed("warm-up", seed), families=WEIGHTED)
        environment = (text if rng.random() < config.text_only else tools)[formatted.format]
        task = formatted.task
        view = rng.choice(environment.views(task))
        teacher = Teacher(rng, config.habits, FAMILIES[task.gold["family"]], task, view)
        session = JudgeSession(environment, task, view, sandbox, encoder=encoder)
        held = await _hold_dialogue(
            session, teacher, SHOWN[formatted.format], encoder, tokenizer.eos_token_id
        )
        progress.count(index)
        return held

    return await asyncio.gather(*(dialogue(index) for index in range(config.dialogues)))


async def _hold_dialogue(
    session: JudgeSession, teacher: Teacher, shown: Shown, encoder: ChatEncoder, end: int
) -> Trajectory:
    """Hold the teacher's dialogue: a program if the prompt allows one, then the verdict."""
    # Only prompts with tools have stop strings, at which a program is run.
    source = teacher.program(shown) if session.prompt.stop else None
    output = None
    if source is not None:
        text = _fenced(source)
        await session.step(Completion(text=text, finish=Finish.STOP, token_ids=tuple(encoder.text(text))))
        output = session.context.segments[-1].text
    text = teacher.verdict(shown, output)
    await session.step(Completion(text=text, finish=Finish.END, token_ids=(*encoder.text(text), end)))
    return session.trajectory


def _fenced(source: str) -> str:
    return f"```python\n{source}\n```\n"
