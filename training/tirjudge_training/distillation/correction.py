"""Correction of wrong judgments by a second teacher that is given the right answer (RM-R1, App. B)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    JudgeTask,
    Prompt,
    Question,
    Reading,
    Refused,
    RunCode,
    Score,
    ToolEnvironment,
    View,
)
from tirjudge_environments.orders import letter
from tirjudge_sandbox import Execution

REQUEST = """\
An earlier judgment came to the wrong end:

<judgment>
{judgment}
</judgment>

The right answer is Response {answer}. Write the whole judgment anew, from its first word and in the form \
asked for above, with sound reasoning that leads there. Run the programs that it needs: outputs of the \
earlier judgment do not count. Write as one who was not told the answer: mention neither that you know it \
nor the earlier judgment."""
"""Our prompt: the paper says what the second teacher is given, but prints none."""


@dataclass(frozen=True, slots=True)
class CorrectionEnvironment:
    """A judge format whose prompt also contains a wrong judgment and the right answer."""

    environment: Environment
    judgment: str
    """The wrong judgment, with its programs and their outputs."""

    @property
    def linked(self) -> bool:
        return self.environment.linked

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return self.environment.views(task)

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

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        return self.environment.read(task, view, completion)

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        # Only a judge with tools asks for a program, so the format has `show`.
        return cast(ToolEnvironment, self.environment).show(request, outcome)

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        return self.environment.questions(group)

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return self.environment.score(group, answers)


def has_right_answer(task: JudgeTask, view: View) -> bool:
    """Return True if a view shows the right response among several; a single response has only a score."""
    return len(view.order) > 1 and task.label in view.order
