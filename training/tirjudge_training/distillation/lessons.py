"""Distillation: collect a teacher's dialogues in our sandbox and select SFT samples from them (TIR §4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from tirjudge.generation import Generator, Sampling
from tirjudge.storage.records import trajectory_record
from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_environments import Budget, Encoder, Environment, Trajectory, derive_seed
from tirjudge_environments.registry import with_options
from tirjudge_sandbox import Sandbox, open_sandbox
from tirjudge_training.distillation.config import TeacherConfig, Tier
from tirjudge_training.distillation.correction import CorrectionEnvironment, has_right_answer
from tirjudge_training.distillation.filtering import TrajectoryFilter, written
from tirjudge_training.distillation.teacher_dialogues import DialogueConfig, TeacherDialogues, TeacherTask
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.sft import Sample

DIALOGUES, CORRECTIONS = "dialogues.jsonl", "corrections.jsonl"
TURNS_BESIDE_PROGRAMS = 5
"""Turns that a teacher may take in addition to one per program."""


class Distillation:
    """A teacher's dialogues about `draws`, stored in a run folder, and the samples selected from them.

    `environments` are the student's.
    """

    def __init__(
        self,
        run: RunFolder,
        config: TeacherConfig,
        draws: Sequence[FormattedTask],
        environments: Mapping[str, Environment],
        *,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._config, self._draws, self._student, self._say = run, config, draws, environments, say
        terms = _terms(config, seed)
        self._teacher = TeacherDialogues("teacher", run, DIALOGUES, terms, say)
        self._corrector = TeacherDialogues("corrector", run, CORRECTIONS, terms, say)
        self._filter = TrajectoryFilter(environments, config)
        self._questions = list(self._first_questions())
        asyncio.run(self._load_earlier())

    def ask(self) -> JsonObject:
        """Collect the missing dialogues; return a summary of all of them.

        Raises GivenUp if teacher or sandbox is down, OSError if the disk is full, RuntimeError if no dialogue
        has the full reward. Dialogues that are in the folder are not requested again.
        """
        asyncio.run(self._ask())
        if not self._filter.prompts:
            raise RuntimeError(
                f"none of the teacher's {len(self._teacher.dialogues)} dialogues has the full reward in the "
                f"student's format: inspect them in {self._run.path / DIALOGUES}"
            )
        usage = self._teacher.usage + self._corrector.usage
        return {
            "asked": len(self._questions),
            "dialogues": len(self._teacher.dialogues),
            "prompts_with_full_reward": self._filter.prompts,
            "corrected": self._filter.corrected,
            "unfit": self._filter.unfit,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        }

    def rows(self, encoder: Encoder, end: int) -> Iterator[JsonObject]:
        """Yield the student's samples for each task as token ids and labels; a turn ends with `end`."""
        for index, draw in enumerate(self._draws):
            views = self._student[draw.format].views(draw.task)
            best = [one for view in views for one in self._filter.best(draw, view)]
            samples = [Sample.written(one, encoder, end) for one in best]
            yield {
                "index": index,
                "id": draw.task.id,
                "format": draw.format,
                "kept": [{"ids": sample.ids, "labels": sample.labels} for sample in samples],
                "trajectories": [trajectory_record(one) for one in best],
            }

    async def _ask(self) -> None:
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(open_sandbox(self._config.sandbox))
            teacher, corrector = self._config.open_teacher(), self._config.open_corrector()
            stack.push_async_callback(teacher.close)
            await self._collect(self._teacher, self._questions, teacher, sandbox, self._filter.add)
            if corrector is not None:
                stack.push_async_callback(corrector.close)
                # After the teacher is done: only then is it known which prompts have no right dialogue.
                mistakes = list(self._mistakes())
                await self._collect(self._corrector, mistakes, corrector, sandbox, self._filter.correct)

    async def _collect(
        self,
        dialogues: TeacherDialogues,
        questions: Sequence[TeacherTask],
        generator: Generator,
        sandbox: Sandbox,
        learn: Callable[[FormattedTask, Trajectory], Coroutine[Any, Any, None]],
    ) -> None:
        await dialogues.ask(
            questions,
            generator,
            sandbox,
            learned=lambda question, trajectory: learn(question.draw, trajectory),
            more=self._affordable,
            yielded=lambda: f"{self._filter.prompts} prompts with a full reward",
        )
        if not self._affordable():
            self._say(
                f"the cap of {self._config.token_cap:,} tokens is reached: continuing with these dialogues"
            )

    def _affordable(self) -> bool:
        cap = self._config.token_cap
        usage = self._teacher.usage + self._corrector.usage
        return cap is None or usage.prompt_tokens + usage.completion_tokens < cap

    async def _load_earlier(self) -> None:
        """Load the dialogues of earlier runs, corrections after the dialogues that they may correct."""
        for question in self._questions:
            if question.key in self._teacher.dialogues:
                await self._filter.add(question.draw, self._teacher.dialogues[question.key])
        for question in list(self._mistakes()):
            if question.key in self._corrector.dialogues:
                await self._filter.correct(question.draw, self._corrector.dialogues[question.key])

    def _first_questions(self) -> Iterator[TeacherTask]:
        config = self._config
        asked = {name: teacher_environment(one, config, config.tier) for name, one in self._student.items()}
        for draw in self._draws:
            environment = asked[draw.format]
            for view in environment.views(draw.task):
                for sample in range(config.samples):
                    yield TeacherTask(draw, view, sample, environment)

    def _mistakes(self) -> Iterator[TeacherTask]:
        """Yield a question to the corrector for each prompt without a dialogue of the full reward."""
        second = self._config.corrector
        if second is None:
            return
        asked = {
            name: teacher_environment(one, self._config, second.tier) for name, one in self._student.items()
        }
        for draw in self._draws:
            for view in asked[draw.format].views(draw.task):
                wrong = self._filter.wrong(draw, view)
                if wrong is not None and has_right_answer(draw.task, view):
                    environment = CorrectionEnvironment(asked[draw.format], written(wrong))
                    yield TeacherTask(draw, view, wrong.sample, environment)


def _terms(config: TeacherConfig, seed: int) -> DialogueConfig:
    return DialogueConfig(
        budget=Budget(
            turns=config.tool_calls + TURNS_BESIDE_PROGRAMS,
            tool_calls=config.tool_calls,
            tokens=config.max_tokens,
        ),
        sampling=Sampling(temperature=config.temperature, max_tokens=config.max_tokens),
        seed=derive_seed("teacher", seed),
        concurrency=config.concurrency,
        give_up_after=config.give_up_after,
    )


def teacher_environment(student: Environment, config: TeacherConfig, tier: Tier) -> Environment:
    """Return the environment in which the teacher judges.

    A TIR format gets the teacher's prompts and protocol; other formats are the student's own. Raises
    ValueError if the prompt family does not exist.
    """
    return with_options(student, prompts=config.family, protocol="tool" if tier == "tools" else "fence")
