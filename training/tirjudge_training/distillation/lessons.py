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
EXTRA_TURNS = 5
"""Turns that a teacher may take in addition to one per program."""


class Distillation:
    """A teacher's dialogues about `tasks`, stored in a run folder, and the samples selected from them.

    `environments` are the student's.
    """

    def __init__(
        self,
        run: RunFolder,
        config: TeacherConfig,
        tasks: Sequence[FormattedTask],
        environments: Mapping[str, Environment],
        *,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._config, self._tasks, self._student, self._say = run, config, tasks, environments, say
        dialogue_config = _dialogue_config(config, seed)
        self._teacher = TeacherDialogues("teacher", run, DIALOGUES, dialogue_config, say)
        self._corrector = TeacherDialogues("corrector", run, CORRECTIONS, dialogue_config, say)
        self._filter = TrajectoryFilter(environments, config)
        self._teacher_tasks = list(self._list_teacher_tasks())
        # Loaded here, so that `rows` works in a later stage without asking anyone.
        asyncio.run(self._load_earlier())

    def ask(self) -> JsonObject:
        """Collect the missing dialogues; return a summary of all of them.

        Dialogues that are in the folder are not requested again. Raises TeacherUnavailable if teacher or
        sandbox is down, OSError if the disk is full, RuntimeError if no dialogue has the full reward.
        """
        asyncio.run(self._ask())
        if not self._filter.prompts:
            raise RuntimeError(
                f"none of the teacher's {len(self._teacher.dialogues)} dialogues has the full reward in the "
                f"student's format: inspect them in {self._run.path / DIALOGUES}"
            )
        usage = self._teacher.usage + self._corrector.usage
        return {
            "asked": len(self._teacher_tasks),
            "dialogues": len(self._teacher.dialogues),
            "prompts_with_full_reward": self._filter.prompts,
            "corrected": self._filter.corrected,
            "unfit": self._filter.unfit,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        }

    def rows(self, encoder: Encoder, end: int) -> Iterator[JsonObject]:
        """Yield the student's samples for each task as token ids and labels; a turn ends with `end`."""
        for index, formatted in enumerate(self._tasks):
            views = self._student[formatted.format].views(formatted.task)
            best = [trajectory for view in views for trajectory in self._filter.best(formatted, view)]
            samples = [Sample.written(trajectory, encoder, end) for trajectory in best]
            yield {
                "index": index,
                "id": formatted.task.id,
                "format": formatted.format,
                "kept": [{"ids": sample.ids, "labels": sample.labels} for sample in samples],
                "trajectories": [trajectory_record(trajectory) for trajectory in best],
            }

    async def _ask(self) -> None:
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(open_sandbox(self._config.sandbox))
            teacher, corrector = self._config.open_teacher(), self._config.open_corrector()
            stack.push_async_callback(teacher.close)
            await self._collect(self._teacher, self._teacher_tasks, teacher, sandbox, self._filter.add)
            if corrector is not None:
                stack.push_async_callback(corrector.close)
                # After the teacher is done: only then is it known which prompts have no right dialogue.
                corrections = list(self._correction_tasks())
                await self._collect(self._corrector, corrections, corrector, sandbox, self._filter.correct)

    async def _collect(
        self,
        dialogues: TeacherDialogues,
        tasks: Sequence[TeacherTask],
        generator: Generator,
        sandbox: Sandbox,
        learn: Callable[[FormattedTask, Trajectory], Coroutine[Any, Any, None]],
    ) -> None:
        await dialogues.ask(
            tasks,
            generator,
            sandbox,
            on_dialogue=lambda task, trajectory: learn(task.formatted, trajectory),
            may_start=self._affordable,
            describe_results=lambda: f"{self._filter.prompts} prompts with a full reward",
        )
        if not self._affordable():
            self._say(
                f"the cap of {self._config.token_cap:,} tokens is reached: continuing with these dialogues"
            )

    def _affordable(self) -> bool:
        """Return True while both teachers together have used fewer tokens than the cap."""
        cap = self._config.token_cap
        usage = self._teacher.usage + self._corrector.usage
        return cap is None or usage.prompt_tokens + usage.completion_tokens < cap

    async def _load_earlier(self) -> None:
        """Load the dialogues of earlier runs, corrections after the dialogues that they may correct."""
        for task in self._teacher_tasks:
            if task.key in self._teacher.dialogues:
                await self._filter.add(task.formatted, self._teacher.dialogues[task.key])
        for task in list(self._correction_tasks()):
            if task.key in self._corrector.dialogues:
                await self._filter.correct(task.formatted, self._corrector.dialogues[task.key])

    def _list_teacher_tasks(self) -> Iterator[TeacherTask]:
        """Yield a task for the teacher for each sample of each view."""
        config = self._config
        environments = {
            name: teacher_environment(one, config, config.tier) for name, one in self._student.items()
        }
        for formatted in self._tasks:
            environment = environments[formatted.format]
            for view in environment.views(formatted.task):
                for sample in range(config.samples):
                    yield TeacherTask(formatted, view, sample, environment)

    def _correction_tasks(self) -> Iterator[TeacherTask]:
        """Yield a task for the corrector for each prompt without a dialogue of the full reward."""
        corrector = self._config.corrector
        if corrector is None:
            return
        environments = {
            name: teacher_environment(one, self._config, corrector.tier)
            for name, one in self._student.items()
        }
        for formatted in self._tasks:
            for view in environments[formatted.format].views(formatted.task):
                wrong = self._filter.wrong(formatted, view)
                if wrong is not None and has_right_answer(formatted.task, view):
                    environment = CorrectionEnvironment(environments[formatted.format], written(wrong))
                    yield TeacherTask(formatted, view, wrong.sample, environment)


def _dialogue_config(config: TeacherConfig, seed: int) -> DialogueConfig:
    return DialogueConfig(
        budget=Budget(
            turns=config.tool_calls + EXTRA_TURNS,
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
