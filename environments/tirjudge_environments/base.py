"""The interface of a judge format: the judge's whole protocol, without a model, a sandbox or a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tirjudge_environments.types import (
    Call,
    Completion,
    Episode,
    JudgeTask,
    Prompt,
    Question,
    Reading,
    Refused,
    RunCode,
    Score,
    Verdict,
    View,
)
from tirjudge_sandbox import Execution


@dataclass(frozen=True, slots=True)
class JudgeCard:
    """A judge format's description of itself, in Markdown without line breaks."""

    views: str
    """The part of a task that one rollout sees."""
    answer: str
    """The form of an answer."""
    reward: str
    """The reward of an answer in training."""
    source: str
    """Paper, section and figures."""


@runtime_checkable
class JudgeFormat(Protocol):
    """An entry of the group `tirjudge.environments` that describes itself: usually the class of a format.

    Without a card a format can be opened as well; `tirjudge formats` then lists its name and options alone.
    """

    card: JudgeCard

    def __call__(self, **options: Any) -> Environment:
        """Open the format with these options; raises TypeError or ValueError for a bad one."""


class Environment(Protocol):
    """A judge format: pure functions from tasks to prompts, from completions to readings, to rewards.

    A format holds no state: every method returns the same value for the same arguments. A format whose judge
    runs programs is a `ToolEnvironment` as well.
    """

    @property
    def linked(self) -> bool:
        """True if a view's reward depends on the other views of its episode.

        A trainer that scores one rollout at a time cannot train such a judge.
        """

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        """Return one sample's views, one per rollout; raises ValueError for a task of the wrong size."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        """Return the judge's prompt for one view of a task."""

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        """Read one turn: all that the model wrote since the prompt or the last output, prefill included.

        Any text has a reading; none raises.
        """

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        """Return the questions that must be answered before `score`; empty for most judges."""

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        """Score a group of episodes of one task.

        `answers` maps the key of each of `questions` to its answer. Returns one tuple per episode, with one
        score per trajectory of the episode.
        """


@runtime_checkable
class ToolEnvironment(Environment, Protocol):
    """A judge format with programs: a reading may be `RunCode`."""

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        """Return the text to append after a program ran or was refused.

        Never called with an execution whose sandbox failed.
        """


OUTPUT_PLACE = "{output}"
"""The place of the output in a text that is shown later."""


@runtime_checkable
class LateText(Protocol):
    """A judge format that shows a part of the task only after a program has run."""

    def later_text(self, task: JudgeTask, view: View) -> str:
        """Return the part, for which tokens are kept; the output replaces the last `OUTPUT_PLACE`."""

    def shows_later(self, request: RunCode, outcome: Execution | Refused) -> bool:
        """Return True if that part follows this output, unless the verdict is settled."""

    def settled(self, view: View, calls: Sequence[Call]) -> Verdict | None:
        """Return the verdict that the last program has settled, which ends the dialogue."""
