"""The rollout engine: concurrent dialogues between a judge model and the sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol

from tirjudge.generation.base import ContextTooLong, Generator, GeneratorFailed, PromptCut, Sampling
from tirjudge.rollout.callers import Turns
from tirjudge.rollout.concurrency import all_or_none, as_finished
from tirjudge_environments import (
    Environment,
    Episode,
    JudgeTask,
    Question,
    Score,
    StopReason,
    Trajectory,
    View,
)
from tirjudge_environments.registry import with_tools
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.tools.base import Tool
from tirjudge_environments.types import Budget, derive_seed
from tirjudge_sandbox import Limits, Sandbox


class RewardAnswers(Protocol):
    """The model behind some rewards; see `tirjudge.judging.meta_judge.RewardQuestions`."""

    async def answers(self, questions: Iterable[Question]) -> Mapping[str, str]:
        """Return the answers by question key."""


class Rollout:
    """Samples trajectories concurrently: while the program of one runs, the others generate.

    A sample is a function of (seed, task id, view, sample, turn) and of the weights, and does not depend on
    what runs at the same time. A generator or a sandbox that fails ends its trajectory with a StopReason that
    says so; any other exception is a mistake in the set-up, and cancels the rest. Cancelling frees every row
    and kills every program. A rollout belongs to one event loop.
    """

    def __init__(
        self,
        environment: Environment,
        generator: Generator,
        sandbox: Sandbox,
        *,
        tools: Sequence[Tool] = (),
        budget: Budget = Budget(),
        limits: Limits = Limits(),
        sampling: Sampling = Sampling(),
        seed: int = 0,
        concurrency: int = 512,
        reward_questions: RewardAnswers | None = None,
        ask_for_verdict: bool = False,
        turns: Turns | None = None,
    ) -> None:
        """Sample dialogues of a judge format from a model; programs run in a sandbox that is open.

        Args:
            tools: tools that the judge may call besides Python, open as long as the rollout is used.
            budget: bounds of one trajectory; `limits` are those of each program.
            sampling: the parameters of every turn, except the seed: each turn gets one derived from `seed`.
            concurrency: the most trajectories that run at once.
            turns: places for trajectories, shared with other rollouts, instead of `concurrency`.
            reward_questions: answers the questions of a judge whose reward depends on another model.
            ask_for_verdict: see `JudgeSession`; not for training, whose rewards read verdicts strictly.

        Raises ValueError for tools that the format cannot offer.
        """
        self.environment = with_tools(environment, tools)
        self._generator, self._sandbox, self._tools = generator, sandbox, tuple(tools)
        self._budget, self._limits, self._sampling, self._seed = budget, limits, sampling, seed
        self._concurrency = concurrency
        self._turns = turns or Turns(concurrency)
        self._reward_questions = reward_questions
        self._ask_for_verdict = ask_for_verdict

    async def trajectory(self, task: JudgeTask, view: View, sample: int = 0) -> Trajectory:
        """Sample one dialogue, from the prompt to its end."""
        async with self._turns.place():
            session = JudgeSession(
                self.environment,
                task,
                view,
                self._sandbox,
                tools=self._tools,
                encoder=self._generator.encoder,
                budget=self._budget,
                limits=self._limits,
                sample=sample,
                seed=derive_seed(self._seed, task.id, view.name, sample),
                ask_for_verdict=self._ask_for_verdict,
            )
            turn = 0
            while not session.done:
                await self._turn(session, derive_seed(self._seed, task.id, view.name, sample, turn))
                turn += 1
            return session.trajectory

    async def episode(self, task: JudgeTask, sample: int = 0) -> Episode:
        """Sample all views of a task once."""
        views = self.environment.views(task)
        return Episode(
            task, sample, tuple(await all_or_none(self.trajectory(task, view, sample) for view in views))
        )

    async def group(self, task: JudgeTask, size: int) -> list[Episode]:
        """Sample a task `size` times."""
        return await all_or_none(self.episode(task, sample) for sample in range(size))

    async def score(self, group: Sequence[Episode]) -> list[tuple[Score, ...]]:
        """Return the environment's scores of a group, after the questions of the scoring are answered.

        Raises NotAnswered when the answering model stays down, and ValueError without an answering model.
        """
        questions = self.environment.questions(group)
        if questions and self._reward_questions is None:
            raise ValueError("the reward of this judge needs a second model: configure one (meta_judge)")
        answers = (
            await self._reward_questions.answers(questions) if questions and self._reward_questions else {}
        )
        return self.environment.score(group, answers)

    async def episodes(self, tasks: Iterable[JudgeTask], size: int = 1) -> AsyncIterator[Episode]:
        """Sample every task `size` times and yield each episode as it finishes.

        Tasks are taken from the iterable as room is made. A caller that leaves the loop early closes the
        iterator (`contextlib.aclosing`), which cancels the rest.
        """
        # A generator, so that tasks are only drawn when there is room for them.
        works = (self.episode(task, sample) for task in tasks for sample in range(size))
        async with aclosing(as_finished(works, self._concurrency)) as finished:
            async for episode in finished:
                yield episode

    async def _turn(self, session: JudgeSession, seed: int) -> None:
        context = session.context
        # The budget of the dialogue bounds a turn too.
        most = min(self._sampling.max_tokens, session.remaining_tokens)
        try:
            sampling = self._sampling.model_copy(update={"seed": seed, "max_tokens": most})
            completion = await self._generator.generate(context, sampling)
        except PromptCut as error:
            session.fail(StopReason.PROMPT_TOO_LONG, str(error))
        except ContextTooLong as error:
            # A prompt that never fitted is not the judge's fault, unlike a dialogue that grew too long.
            reason = StopReason.TOKEN_BUDGET if context.segments else StopReason.PROMPT_TOO_LONG
            session.fail(reason, str(error))
        except GeneratorFailed as error:
            session.fail(StopReason.GENERATOR_DOWN, str(error))
        else:
            await session.step(completion)
