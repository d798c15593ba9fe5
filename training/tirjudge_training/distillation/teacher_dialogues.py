"""The dialogues with a teacher: each is requested and stored once, and replayed in the student's format."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from tirjudge.console_text import printable
from tirjudge.generation import Generator, Sampling
from tirjudge.progress import ProgressReporter
from tirjudge.records.episodes import read_trajectory, trajectory_record
from tirjudge.rollout import Rollout, as_finished
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.result_file import digest
from tirjudge_environments import (
    Budget,
    By,
    Completion,
    Environment,
    Finish,
    JudgeSession,
    JudgeTask,
    StopReason,
    Trajectory,
    Usage,
    View,
)
from tirjudge_environments.programs.recording import ReplaySandbox
from tirjudge_environments.turn_reader import Turn
from tirjudge_sandbox import Execution, Sandbox
from tirjudge_training.rl.dynamic_sampling import FormattedTask

SHOWN_FAILURES = 5
"""Most failed dialogues to report separately."""
DOWN = (StopReason.GENERATOR_DOWN, StopReason.SANDBOX_DOWN)
"""Stop reasons that say nothing about the teacher's judgment."""

Key = tuple[str, str, str, str, int]


class TeacherUnavailable(RuntimeError):
    """The model or the sandbox failed in too many consecutive dialogues; one line."""


@dataclass(frozen=True, slots=True)
class TeacherTask:
    """One dialogue to collect: a view of a task, with the environment for the teacher."""

    formatted: FormattedTask
    view: View
    sample: int
    environment: Environment

    @property
    def key(self) -> Key:
        """The identity of a dialogue: format, task id, digest of the task, view and sample.

        An edited task has another digest, so that its dialogue is requested again.
        """
        task = self.formatted.task
        return self.formatted.format, task.id, digest(task), self.view.name, self.sample


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueConfig:
    """Sampling, budget and concurrency of dialogues, and when to abort."""

    budget: Budget
    sampling: Sampling
    seed: int
    concurrency: int
    give_up_after: int
    """Consecutive failed dialogues after which the run aborts."""


class TeacherDialogues:
    """The dialogues in one file of a run folder, and the collection of missing ones."""

    def __init__(
        self, name: str, run: RunFolder, file: str, config: DialogueConfig, say: Callable[[str], None]
    ) -> None:
        self._name, self._run, self._file, self._config, self._say = name, run, file, config, say
        # Resuming is nothing but loading this file: only missing dialogues are requested.
        self.dialogues: dict[Key, Trajectory] = {_key(row): read_trajectory(row) for row in run.read(file)}
        self.usage = sum((one.usage for one in self.dialogues.values()), Usage())
        """The token usage of all stored dialogues, and of the dialogues that failed in this run."""
        self.failed = 0
        """Dialogues that failed in this run."""
        self._consecutive_failures = 0

    async def ask(
        self,
        tasks: Sequence[TeacherTask],
        generator: Generator,
        sandbox: Sandbox,
        *,
        on_dialogue: Callable[[TeacherTask, Trajectory], Awaitable[None]],
        may_start: Callable[[], bool] = lambda: True,
        describe_results: Callable[[], str] = lambda: "",
    ) -> None:
        """Collect the missing dialogues; each is on disk before it is passed to `on_dialogue`.

        `may_start` decides before each dialogue whether to start it; `describe_results` describes the results
        so far in a few words, for the progress line. A dialogue that failed because the model or the sandbox
        was down is not stored, so that a resumed run requests it again. Raises TeacherUnavailable, OSError.
        """
        missing = [task for task in tasks if task.key not in self.dialogues]
        progress = ProgressReporter(
            self._say,
            Path(self._file).stem,
            "dialogues",
            len(tasks),
            done=len(tasks) - len(missing),
            detail=lambda: self._spent(describe_results()),
        )

        async def collect(task: TeacherTask) -> tuple[TeacherTask, Trajectory]:
            config = self._config
            rollout = Rollout(
                task.environment,
                generator,
                sandbox,
                budget=config.budget,
                sampling=config.sampling,
                seed=config.seed,
            )
            return task, await rollout.trajectory(task.formatted.task, task.view, task.sample)

        # A generator, so that `may_start` is asked when a dialogue is due and not in advance.
        def works() -> Iterator[Any]:
            for task in missing:
                if not may_start():
                    return
                yield collect(task)

        async with aclosing(as_finished(works(), self._config.concurrency)) as dialogues:
            async for task, trajectory in dialogues:
                # A failed dialogue counts too, because its earlier turns were paid for.
                self.usage += trajectory.usage
                if trajectory.stop in DOWN:
                    self._fail(task, trajectory)
                    continue
                self._keep(task, trajectory)
                await on_dialogue(task, trajectory)
                progress.count(task)
        if missing:
            progress.report()

    def _keep(self, task: TeacherTask, trajectory: Trajectory) -> None:
        self._consecutive_failures = 0  # one success shows that teacher and sandbox work
        format, id, task_digest, _, _ = task.key
        row = {"format": format, "id": id, "digest": task_digest, **trajectory_record(trajectory)}
        self._run.append(self._file, row)
        self.dialogues[task.key] = trajectory

    def _fail(self, task: TeacherTask, trajectory: Trajectory) -> None:
        self.failed += 1
        self._consecutive_failures += 1
        # The first failures suffice: an endpoint that is down fails in the same way thousands of times.
        if self.failed <= SHOWN_FAILURES:
            self._say(printable(f"{task.formatted.task.id}: {trajectory.detail}"))
        if self._consecutive_failures >= self._config.give_up_after:
            raise TeacherUnavailable(
                f"the {self._name} failed in {self._consecutive_failures} consecutive dialogues, the last "
                f"one because: {printable(trajectory.detail)}; the same command resumes with the "
                f"{len(self.dialogues)} dialogues in {self._run.path / self._file}"
            )

    def _spent(self, results: str) -> str:
        """Return the results so far, the failures and the tokens, for the progress line."""
        failures = f"{self.failed} failed" if self.failed else ""
        tokens = f"{self.usage.prompt_tokens:,} prompt tokens"
        parts = (results, failures, tokens, f"{self.usage.completion_tokens:,} completion tokens")
        return ", ".join(part for part in parts if part)


_key = itemgetter("format", "id", "digest", "view", "sample")
_UNBOUNDED = 1 << 30
"""A token budget without effect: SFT refuses samples that are too long for the student."""


async def convert_dialogue(trajectory: Trajectory, environment: Environment, task: JudgeTask) -> Trajectory:
    """Return the dialogue as `environment` would have recorded it, with its programs' recorded outcomes.

    Native calls become fenced programs, one per turn, and their outputs the text that the student is shown;
    hidden reasoning is dropped. No program is run, and the result has no token ids. If the conversion would
    change a program (a fence inside its text, a draft before the call), the result stops as SANDBOX_DOWN and
    is therefore Unscored.
    """
    turns = list(_turns(trajectory))
    # Refused programs come last and are refused again: the sandbox replays programs that ran.
    ran = [
        (call.request.source, call.outcome)
        for call in trajectory.calls
        if isinstance(call.outcome, Execution)
    ]
    sandbox = ReplaySandbox([execution for _, execution in ran], sources=[source for source, _ in ran])
    session = JudgeSession(
        environment,
        task,
        trajectory.view,
        sandbox,
        # A budget for exactly this dialogue, so that no limit of the student applies.
        budget=Budget(turns=len(turns) + 1, tool_calls=len(ran), tokens=_UNBOUNDED),
        sample=trajectory.sample,
    )
    for number, text in enumerate(turns, 1):
        if session.done:
            break
        await session.step(Completion(text=text, finish=Finish.END if number == len(turns) else Finish.STOP))
    if not session.done:
        # The teacher stopped without a verdict, which the student must not learn.
        session.fail(StopReason.MALFORMED, "the dialogue ends without a verdict")
    return session.trajectory


def _turns(trajectory: Trajectory) -> Iterator[str]:
    """Yield the model's text of each turn, with one turn per program."""
    calls = deque(trajectory.calls)
    for segment in trajectory.segments:
        if segment.by is By.SANDBOX:
            continue
        text = segment.text
        requested = len(segment.tool_calls) or int(Turn(text).program is not None)
        sources = [calls.popleft().request.source for _ in range(min(requested, len(calls)))]
        if segment.tool_calls:
            yield from _fenced(text, sources)
        else:
            # The newline after a closing fence belongs to the model's turn, so the student must learn it.
            yield text if not sources or text.endswith(("\n", "output")) else f"{text}\n"


def _fenced(text: str, sources: Iterable[str]) -> Iterator[str]:
    """Yield one turn per program; the text of the turn comes before the first one."""
    lead = f"{text.rstrip()}\n" if text.strip() else ""
    for source in sources:
        body = source.rstrip("\n")
        yield f"{lead}```python\n{body}\n```\n"
        lead = ""
