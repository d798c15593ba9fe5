"""Distillation: a teacher's dialogues are scored and corrected, and the best become samples (TIR §4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, cast

from tirjudge.generation import Generator, Sampling
from tirjudge.records.episodes import trajectory_record
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import (
    Budget,
    Encoder,
    Environment,
    Episode,
    JudgeTask,
    Prompt,
    StopReason,
    Trajectory,
    View,
    derive_seed,
)
from tirjudge_environments.orders import letter
from tirjudge_environments.registry import with_options
from tirjudge_sandbox import Sandbox, open_sandbox
from tirjudge_training.distillation.config import TeacherConfig, Tier
from tirjudge_training.distillation.teacher_dialogues import (
    DialogueConfig,
    TeacherDialogues,
    TeacherTask,
    convert_dialogue,
)
from tirjudge_training.rl.dynamic_sampling import FormattedTask, cheapest, full
from tirjudge_training.sft import Sample

REQUEST = """\
An earlier judgment came to the wrong end:

<judgment>
{judgment}
</judgment>

The right answer is Response {answer}. Write the whole judgment anew, from its first word and in the form \
asked for above, with sound reasoning that leads there. Run the programs that it needs: outputs of the \
earlier judgment do not count. Write as one who was not told the answer: mention neither that you know it \
nor the earlier judgment."""
"""Our prompt: the paper describes the second teacher's input, but prints no prompt."""


@dataclass(frozen=True, slots=True)
class CorrectionEnvironment:
    """A judge format whose prompt also contains a wrong judgment and the right answer.

    Everything but the prompt is that of `environment`.
    """

    environment: Environment
    judgment: str
    """The wrong judgment, with its programs and their outputs."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        """Return the prompt; raises ValueError if the task has no label (see `has_right_answer`)."""
        if task.label is None:
            raise ValueError(f"task {task.id!r} has no label to give to the corrector")
        # Appended to the last message, so that the judge's own instructions stay unchanged.
        prompt = self.environment.prompt(task, view)
        *others, last = prompt.messages
        # The letter in this view, which may show the responses in another order than the task.
        answer = letter(view.order.index(task.label))
        request = REQUEST.format(judgment=self.judgment.strip(), answer=answer)
        return replace(prompt, messages=(*others, replace(last, content=f"{last.content}\n\n{request}")))


def has_right_answer(task: JudgeTask, view: View) -> bool:
    """Return True if a view shows the right response among several; a single response has only a score."""
    return len(view.order) > 1 and task.label in view.order


PromptKey = tuple[str, str, str]
"""Format, task id and view name of a prompt."""


class TrajectoryFilter:
    """Converts and scores a teacher's dialogues, and selects the best ones.

    Dialogues may be added in any order; the result of `best` does not depend on it.
    """

    def __init__(self, environments: Mapping[str, Environment], config: TeacherConfig) -> None:
        """`environments` are the student's."""
        self._environments, self._config = environments, config
        self._converted: dict[tuple[str, str], dict[int, dict[str, Trajectory]]] = {}
        """Converted dialogues by (format, task id), sample number, and view name."""
        self._right: dict[PromptKey, list[Trajectory]] = {}
        self.unfit = 0
        """Dialogues that cannot be converted to the student's format."""
        self.corrected = 0
        """Dialogues with the full reward that the corrector wrote."""

    async def add(self, formatted: FormattedTask, trajectory: Trajectory) -> None:
        """Add a dialogue. A sample is scored once complete, since some rewards link views."""
        converted = await self._convert(formatted, trajectory)
        samples = self._converted.setdefault((formatted.format, formatted.task.id), {})
        views = samples.setdefault(trajectory.sample, {})
        views[trajectory.view.name] = converted
        for name in self._right_views(formatted, views):
            self._right.setdefault((formatted.format, formatted.task.id, name), []).append(views[name])

    async def correct(self, formatted: FormattedTask, trajectory: Trajectory) -> None:
        """Add a corrected dialogue, which is scored in place of the original dialogue."""
        converted = await self._convert(formatted, trajectory)
        before = self._converted[formatted.format, formatted.task.id][trajectory.sample]
        name = trajectory.view.name
        if name in self._right_views(formatted, {**before, name: converted}):
            self._right.setdefault((formatted.format, formatted.task.id, name), []).append(converted)
            self.corrected += 1

    def wrong(self, formatted: FormattedTask, view: View) -> Trajectory | None:
        """Return a prompt's first dialogue to correct; None if any has the full reward or all are empty."""
        if self._right.get((formatted.format, formatted.task.id, view.name)):
            return None
        samples = sorted(self._converted.get((formatted.format, formatted.task.id), {}).items())
        dialogues = (sample[view.name] for _, sample in samples if view.name in sample)
        return next((dialogue for dialogue in dialogues if written(dialogue).strip()), None)

    def best(self, formatted: FormattedTask, view: View) -> Trajectory | None:
        """Return the dialogue of a prompt to keep; None if none has the full reward."""
        right = self._right.get((formatted.format, formatted.task.id, view.name), [])
        # Dialogues arrive in any order, and the first among equals is kept.
        right = sorted(right, key=lambda trajectory: trajectory.sample)
        # In characters, since a converted dialogue has no token ids.
        costs = [(len(written(trajectory)), len(trajectory.calls)) for trajectory in right]
        best = cheapest(costs, self._config.keep)
        return None if best is None else right[best]

    @property
    def prompts(self) -> int:
        """The number of prompts with a dialogue of the full reward."""
        return len(self._right)

    async def _convert(self, formatted: FormattedTask, trajectory: Trajectory) -> Trajectory:
        environment = self._environments[formatted.format]
        converted = await convert_dialogue(trajectory, environment, formatted.task)
        # The replay marks a changed program as a sandbox failure, which is never scored.
        self.unfit += converted.stop is StopReason.SANDBOX_DOWN
        return converted

    def _right_views(self, formatted: FormattedTask, dialogues: Mapping[str, Trajectory]) -> list[str]:
        """Return the names of a sample's views with the full reward; none before all views are present."""
        environment = self._environments[formatted.format]
        views = environment.views(formatted.task)
        if len(dialogues) < len(views):
            return []
        sample = next(iter(dialogues.values())).sample
        episode = Episode(formatted.task, sample, tuple(dialogues[view.name] for view in views))
        # Scored without answers of a meta-judge.
        (scores,) = environment.score([episode], {})
        return [
            view.name for view, score in zip(views, scores, strict=True) if full([score], self._config.reward)
        ]


def written(trajectory: Trajectory) -> str:
    """Return everything after the prompt, program outputs included."""
    return "".join(segment.text for segment in trajectory.segments)


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
        """Collect the missing dialogues; return a summary of all dialogues.

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
            found = (self._filter.best(formatted, view) for view in views)
            best = [trajectory for trajectory in found if trajectory is not None]
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
            if corrector is not None:
                stack.push_async_callback(corrector.close)
            await self._collect(self._teacher, self._teacher_tasks, teacher, sandbox, self._filter.add)
            if corrector is not None:
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
            may_start=lambda: self._affordable() and not self._enough(),
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

    def _enough(self) -> bool:
        """Return True once as many dialogues as wanted have the full reward."""
        return self._config.kept is not None and self._filter.prompts >= self._config.kept

    async def _load_earlier(self) -> None:
        """Load the dialogues of earlier runs, corrections after possibly corrected dialogues."""
        for task in self._teacher_tasks:
            if task.key in self._teacher.dialogues:
                await self._filter.add(task.formatted, self._teacher.dialogues[task.key])
        for task in list(self._correction_tasks()):
            if task.key in self._corrector.dialogues:
                await self._filter.correct(task.formatted, self._corrector.dialogues[task.key])

    def _list_teacher_tasks(self) -> Iterator[TeacherTask]:
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
                    judge = environments[formatted.format]
                    environment = cast(Environment, CorrectionEnvironment(judge, written(wrong)))
                    yield TeacherTask(formatted, view, wrong.sample, environment)


def _dialogue_config(config: TeacherConfig, seed: int) -> DialogueConfig:
    return DialogueConfig(
        budget=Budget(
            turns=config.tool_calls + EXTRA_TURNS, tool_calls=config.tool_calls, tokens=config.max_tokens
        ),
        sampling=Sampling.of(config, max_tokens=config.max_tokens),
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
