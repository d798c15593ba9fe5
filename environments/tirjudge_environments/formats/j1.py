"""What the five J1 judges share: answers behind the thinking, and rewards of 0 and 1 (J1 section 2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import Field

from tirjudge_environments.elements import behind, behind_thinking, elements, tag_count
from tirjudge_environments.formats.text_only import TextOnly, written
from tirjudge_environments.rewards import failed, incomparable
from tirjudge_environments.types import Episode, Malformed, Reward, Score, Trajectory

_TENTHS = re.compile(r"10(\.0{1,9})?|[0-9](\.[0-9]0{0,8})?", re.ASCII)


class J1(TextOnly):
    """A J1 judge: 1 for what is right and 0 for what is not, unless the two optional terms say otherwise."""

    negative_reward: float = Field(default=0.0, le=0.0)
    """Instead of 0 for what is not right (J1 Table 4). The paper prints no size: any is ours."""
    format_reward: float = Field(default=0.0, ge=0.0)
    """Added where the thinking stands in its tags, once (J1 section 2.3 and Table 4); sizes are ours, too."""

    def right(self, episode: Episode) -> tuple[bool, ...]:
        """For each view whether what it said, or all views together, is right. The task has a label."""
        label = episode.task.label
        verdicts = (trajectory.verdict for trajectory in episode.trajectories)
        return tuple(verdict is not None and verdict.choice == label for verdict in verdicts)

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> tuple[Score, ...]:
        unscored = incomparable(episode)
        if unscored is not None:
            return tuple(unscored for _ in episode.trajectories)
        down = [failed(trajectory) for trajectory in episode.trajectories]
        if self.linked:
            down = [next(filter(None, down), None) for _ in down]
        views = zip(episode.trajectories, down, self.right(episode), strict=True)
        return tuple(reason or self._reward(one, right) for one, reason, right in views)

    def _reward(self, trajectory: Trajectory, right: bool) -> Reward:
        formed = thought(written(trajectory), self.steps)
        parts = {"correct": float(right), "format": float(formed)}
        total = (1.0 if right else self.negative_reward) + self.format_reward * formed
        return Reward(total=total, parts=parts)

    @property
    def steps(self) -> tuple[str, ...]:
        """The tags that the thinking stands in, in order."""
        return ("think",)


def thought(text: str, steps: Sequence[str]) -> bool:
    """Whether each step stands in its tags, once, one behind the other from the start of the text."""
    end = 0
    for step in steps:
        found = elements(text, step)
        if tag_count(text, step) != (1, 1) or len(found) != 1 or text[end : found[0].start].strip():
            return False
        end = found[0].end
    return True


def said(text: str, name: str, steps: Sequence[str]) -> str | Malformed:
    """What the elements of this name behind the thinking hold; they may repeat but not contradict it."""
    answer = behind_thinking(text)
    for step in steps:
        answer = behind(answer, step) if answer is not None else None
    if answer is None:
        return Malformed("the thinking was not closed")
    bodies = {element.body for element in elements(answer, name)}
    if len(bodies) == 1:
        return bodies.pop()
    return Malformed(
        f"<{name}> elements that contradict each other" if bodies else f"no <{name}> behind the thinking"
    )


def tenths(body: str | Malformed, name: str) -> float | Malformed:
    """A score from 0 to 10 with at most one decimal that is not 0."""
    if isinstance(body, Malformed):
        return body
    if not _TENTHS.fullmatch(body):
        return Malformed(f"a <{name}> that is no number from 0 to 10 in tenths")
    return float(body)
