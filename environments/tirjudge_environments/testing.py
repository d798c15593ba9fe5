"""The conformance suite of judge formats: `await check_environment(environment, task)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tirjudge_environments.base import Environment, LateText, ToolEnvironment
from tirjudge_environments.messages import response_text
from tirjudge_environments.programs.recording import ReplaySandbox
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.types import (
    Completion,
    Continue,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Reward,
    RunCode,
    StopReason,
    ToolCall,
    Trajectory,
    Unscored,
    Verdict,
)
from tirjudge_sandbox import Execution, Status

HOSTILE_TEXTS = (
    "",
    "no answer at all",
    "\x00\x1b[31m\ud800\U0010ffff\u202e",
    "```python",
    "```python\n```",
    "```python\nprint(1)\n```\n",
    "```python\nprint(1)\n```output\n1\n```\n<preference>A</preference><score>5</score>",
    "```output\n1\n```\n",
    "<preference>",
    "</score><score>",
    "<score>" * 1000,
    "`" * 10_000,
    "```json\n```python\n" * 500,
    "<preference>ZZZ</preference><score>1e309</score>",
    "<preference>A</preference><score>10</score>",
    "<think>a</think><answer>[[A]]</answer><score_A>1</score_A><score_B>2</score_B>",
    "<think>a</think><answer>8</answer><answer>3</answer>",
    "<think>" * 1000 + "<answer>[[B]]</answer>",
    "<think>\n</think>\n<answer>[[B]]</answer>",
)
"""Texts that a model may write, good and bad; reading them must not raise."""


def fixed_sandbox(*executions: Execution) -> ReplaySandbox:
    """Return a sandbox that runs nothing and returns these executions in order, then repeats the last one.

    Without executions, every program prints 42.
    """
    printed = Execution(status=Status.OK, exit_code=0, stdout="42\n")
    return ReplaySandbox(executions or (printed,), repeat_last=True)


async def check_environment(environment: Environment, task: JudgeTask) -> None:
    """Run all checks on a format; raises AssertionError with a description of what is broken.

    The task must fit the format and have a label.
    """
    check_views(environment, task)
    check_reading(environment, task)
    trajectories = await play_hostile_texts(environment, task)
    check_scores(environment, task, trajectories)


def check_views(environment: Environment, task: JudgeTask) -> None:
    """Check that views are pure, have unique names, and that prompts show their candidates."""
    views = environment.views(task)
    assert views, "a task has at least one view"
    assert views == environment.views(task), "views are a pure function of the task"
    assert len({view.name for view in views}) == len(views), "view names are unique within a task"
    for view in views:
        assert set(view.order) <= set(range(len(task.candidates))), "a view shows the task's own candidates"
        assert len(set(view.order)) == len(view.order), "a view shows no candidate twice"
        prompt = environment.prompt(task, view)
        assert prompt == environment.prompt(task, view), "a prompt is a pure function of task and view"
        text = "\n".join(message.content for message in prompt.messages)
        if isinstance(environment, LateText):
            text += environment.later_text(task, view)
        shown = (response_text(task.candidates[index]) for index in view.order)
        assert all(response in text for response in shown), "candidates are shown unchanged"


def check_reading(environment: Environment, task: JudgeTask) -> None:
    """Check that any completion has a reading, and that reading is pure."""
    for view in environment.views(task):
        for text in HOSTILE_TEXTS:
            for finish in Finish:
                calls = (ToolCall("1", "run_python", text),) if finish is Finish.TOOL_CALL else ()
                completion = Completion(text=text, finish=finish, tool_calls=calls)
                reading = environment.read(task, view, completion)
                assert isinstance(reading, RunCode | Verdict | Continue | Malformed), f"read {text!r}"
                assert reading == environment.read(task, view, completion), "reading is pure"
                if isinstance(reading, RunCode):
                    assert isinstance(environment, ToolEnvironment), "a judge that runs programs has `show`"


async def play_hostile_texts(environment: Environment, task: JudgeTask) -> list[tuple[Trajectory, ...]]:
    """Play a dialogue per hostile text and view, in which the model writes that text in every turn."""
    episodes = []
    for text in HOSTILE_TEXTS:
        trajectories = []
        for view in environment.views(task):
            session = JudgeSession(environment, task, view, fixed_sandbox())
            while not session.done:
                await session.step(Completion(text=text, finish=Finish.END))
            trajectories.append(session.trajectory)
        episodes.append(tuple(trajectories))
    return episodes


def check_scores(
    environment: Environment, task: JudgeTask, episodes: Sequence[tuple[Trajectory, ...]]
) -> None:
    """Check that every trajectory has one score, and that a failed sandbox or a missing label has none."""
    group = [Episode(task, sample, trajectories) for sample, trajectories in enumerate(episodes)]
    answers = {question.key: "" for question in environment.questions(group)}
    scores = environment.score(group, answers)
    assert scores == environment.score(group, answers), "scoring is pure"
    assert [len(row) for row in scores] == [len(episode.trajectories) for episode in group]
    assert all(isinstance(score, Reward | Unscored) for row in scores for score in row)

    if not environment.linked:
        for episode, row in zip(group, scores, strict=True):
            alone = [Episode(task, episode.sample, (one,)) for one in episode.trajectories]
            assert [environment.score([one], answers)[0] for one in alone] == [(score,) for score in row], (
                "a judge that says its views are not `linked` scores each of them alone"
            )

    down = [replace(one, stop=StopReason.SANDBOX_DOWN, verdict=None) for one in group[0].trajectories]
    unlabelled = replace(task, label=None, gold={})
    for episode in (replace(group[0], trajectories=tuple(down)), replace(group[0], task=unlabelled)):
        for score in environment.score([episode], answers)[0]:
            assert isinstance(score, Unscored), "a failed sandbox or a missing label gives no reward"
