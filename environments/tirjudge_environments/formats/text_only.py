"""What the judges without tools share: one prompt from a data file, one turn, read where it ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from tirjudge_environments.templates import Template, conversation_text, load_template
from tirjudge_environments.types import (
    Ask,
    By,
    Completion,
    Continue,
    Episode,
    Finish,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Reading,
    Refused,
    RunCode,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_sandbox import Execution


@dataclass(frozen=True, slots=True)
class Wording:
    """How a judge is asked: the names of prompt files, without `.txt`."""

    user: str
    """Made into the user's message, its slots filled (see `templates`)."""
    system: str = ""
    """The system message, taken as it stands; empty: there is none."""
    prefill: str = ""
    """The start of the answer, a text, written for the model; the reader sees it too."""


class TextOnly(BaseModel, ABC):
    """A judge that answers from the text alone: the zero-tool case of the environment contract.

    A format says how it asks, what a rollout sees, how an answer is read and what that is worth:
    `wording`, `views`, `verdict` and `score`. Everything that these depend on is an option.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_post_init(self, context: Any) -> None:
        """Look for the prompts now, not in the middle of a run."""
        self._messages()

    @property
    @abstractmethod
    def wording(self) -> Wording:
        """Which prompt files are filled, and how the answer begins."""

    @property
    def linked(self) -> bool:
        """Whether a view's reward depends on the other views."""
        return False

    @abstractmethod
    def views(self, task: JudgeTask) -> tuple[View, ...]: ...

    @abstractmethod
    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        """What the whole turn says, prefill included. Any text has an answer, in linear time."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        user, system = self._messages()
        shown = [task.candidates[index] for index in view.order]
        text = user.fill(conversation_text(task.prompt), shown)
        instructed = (Message("system", system.text),) if system else ()
        return Prompt(messages=(*instructed, Message("user", text)), prefill=self.wording.prefill)

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        text = _with_reasoning(completion.text, completion.reasoning, self.wording.prefill)
        reading = self.verdict(task, view, text)
        cut = completion.finish is Finish.LENGTH and isinstance(reading, Malformed)
        return Continue() if cut else reading

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        raise NotImplementedError("a judge without tools asks for no program")

    def ask(self, group: Sequence[Episode]) -> tuple[Ask, ...]:
        return ()

    def _messages(self) -> tuple[Template, Template | None]:
        wording = self.wording
        return load_template(wording.user), load_template(wording.system) if wording.system else None


def written(trajectory: Trajectory) -> str:
    """All that the reader saw of a text-only dialogue: the prefill and what the model wrote after it."""
    turns = [segment for segment in trajectory.segments if segment.by is By.MODEL]
    prefill = trajectory.prompt.prefill
    text = prefill + "".join(turn.text for turn in turns)
    return _with_reasoning(text, "".join(turn.reasoning for turn in turns), prefill)


def _with_reasoning(text: str, reasoning: str, prefill: str) -> str:
    """Thinking that an endpoint cut out of the answer, put back where the model wrote it."""
    if not reasoning or "</think>" in text:
        return text
    return f"<think>{reasoning}</think>{text.removeprefix(prefill)}"
