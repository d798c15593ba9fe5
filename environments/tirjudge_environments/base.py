"""The environment contract: a judge's whole protocol, without a model, a sandbox or a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tirjudge_environments.types import (
    Ask,
    Completion,
    Episode,
    JudgeTask,
    Prompt,
    Reading,
    Refused,
    RunCode,
    Score,
    View,
)
from tirjudge_sandbox import Execution


class Environment(Protocol):
    """A judge format: pure functions from tasks to prompts, from completions to readings, to rewards."""

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        """What the rollouts of one sample see; raises ValueError for a task of the wrong size."""
        ...

    def prompt(self, task: JudgeTask, view: View) -> Prompt: ...

    def read(self, task: JudgeTask, view: View, completion: Completion) -> Reading:
        """Read one turn: all that the model wrote since the prompt or the last output, prefill included."""
        ...

    def show(self, request: RunCode, outcome: Execution | Refused) -> str:
        """The text that is appended after a program ran or was refused; never given a failed sandbox."""
        ...

    def ask(self, group: Sequence[Episode]) -> tuple[Ask, ...]:
        """Questions that must be answered before `score`; empty for most judges."""
        ...

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        """One tuple per episode of the group, one score per trajectory of the episode."""
        ...
