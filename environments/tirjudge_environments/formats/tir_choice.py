"""What the pairwise and the listwise format share: an order, a letter for an answer, and its reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.letters import letters
from tirjudge_environments.orders import Order, ordered_views
from tirjudge_environments.rewards import failed, tir_reward, tools_in_order, unlabelled
from tirjudge_environments.types import Episode, JudgeTask, Score, Trajectory, Verdict, View


class TirChoice(TirFormat):
    """The judge sees every response under a letter and names the best."""

    tag: ClassVar[str] = "preference"

    order: Order = "random"
    """Of the responses: one permutation drawn from (seed, task id); as given; or as given and reversed."""
    seed: int = 0

    @property
    def linked(self) -> bool:
        """Whether a view's reward depends on the other views."""
        return False

    def verdict(self, view: View, answer: str) -> Verdict | None:
        shown = dict(zip(letters(len(view.order)), view.order, strict=True))
        return Verdict(choice=shown[answer]) if answer in shown else None

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [tuple(self._score(episode, one) for one in episode.trajectories) for episode in group]

    def _score(self, episode: Episode, trajectory: Trajectory) -> Score:
        unscored = unlabelled(episode) or failed(trajectory)
        if unscored is not None:
            return unscored
        verdict = self.replay(trajectory)
        return tir_reward(
            correct=verdict is not None and verdict.choice == episode.task.label,
            well_formed=self.well_formed(episode.task, trajectory),
            tools_in_order=tools_in_order(trajectory),
        )

    def _ordered(self, task: JudgeTask) -> tuple[View, ...]:
        return ordered_views(task, self.order, self.seed)
