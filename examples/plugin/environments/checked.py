"""A judge that passes or fails each response alone, with a program that it writes to check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_environments import (
    Completion,
    Continue,
    Episode,
    Finish,
    JudgeCard,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Question,
    Reading,
    Refused,
    Reward,
    RunCode,
    Score,
    Trajectory,
    Unscored,
    Verdict,
    View,
)
from tirjudge_environments.orders import single_views
from tirjudge_environments.programs.outputs import output_text, quote_fences
from tirjudge_environments.templates import question_text
from tirjudge_environments.turn_reader import Turn
from tirjudge_sandbox import Execution

ASKED = """\
Does the response do what was asked? Check it with a Python program in a ```python fence, which finds it as \
`response`. When you have seen the output, answer <check>pass</check> or <check>fail</check>.

[Asked]
{asked}

[Response]
{response}
"""
SCORES = {"pass": 1.0, "fail": 0.0}


class Checked(BaseModel):
    """A judge that runs a program or several, then answers `pass` or `fail`; rewarded if right."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<check>pass</check>` or `fail`",
        reward="1 where the labelled response passes and another fails",
        source="an example",
    )
    marks: ClassVar[tuple[str, ...]] = ("check",)
    """The tags from which it reads: no text of others that it is shown holds one."""
    linked: ClassVar[bool] = False
    """A view's reward does not depend on the other views."""

    output_chars: int = Field(default=2000, ge=1)
    """Maximum length of a program's output that the judge sees."""

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        asked = question_text(task)
        text = ASKED.format(asked=asked, response=_response(task, view))
        return Prompt(messages=(Message("user", text),), stop=("```output",))

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        turn = Turn(completion.text)
        if turn.program is not None:
            bindings = {"response": _response(task, view)}
            return RunCode(turn.source, bindings, turn.awaited is not None, end=turn.request_end)
        if (score := SCORES.get(turn.answer("check") or "")) is not None:
            return Verdict(scores={view.order[0]: score})
        if completion.finish in (Finish.STOP, Finish.LENGTH):
            return Continue()
        return Malformed("no <check>pass</check> or <check>fail</check>")

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        body = f"{quote_fences(output_text(outcome, self.output_chars))}\n```\n"
        return body if request.opened else f"```output\n{body}"

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        return ()

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [tuple(_score(episode.task, one) for one in episode.trajectories) for episode in group]


def _response(task: JudgeTask, view: View) -> str:
    return task.candidates[view.order[0]]


def _score(task: JudgeTask, trajectory: Trajectory) -> Score:
    if trajectory.stop.unscored:
        return Unscored(trajectory.detail or trajectory.stop)
    if task.label is None:
        return Unscored("the task has no label")
    (index,) = trajectory.view.order
    right = trajectory.verdict is not None and trajectory.verdict.scores[index] == float(index == task.label)
    return Reward(float(right), {}, right=right, teaches=right)
