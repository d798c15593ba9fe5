"""TIR-Judge's formats that compare: the better of two responses, or the best of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import Order, letters, ordered_views, require_pair
from tirjudge_environments.rewards import failed, tir_reward, tools_in_order, unlabelled
from tirjudge_environments.types import Episode, JudgeTask, Score, Trajectory, Verdict, View


class TirChoice(TirFormat):
    """A TIR-Judge format in which the judge sees every response under a letter and names the best one."""

    tag: ClassVar[str] = "preference"

    order: Order = "random"
    """Order of the responses: one permutation drawn from (seed, task id); as given; or as given and
    reversed."""
    seed: int = 0

    @property
    def linked(self) -> bool:
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


class TirPairwise(TirChoice):
    """TIR-Judge, pairwise (TIR Fig. 8 and 11): two responses, answered by `<preference>A</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in a random order",
        answer="`<preference>A</preference>`",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="TIR-Judge section 4.2, Fig. 8, without tools Fig. 11",
    )

    kind: ClassVar[str] = "pairwise"

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        require_pair(task)
        return self._ordered(task)


class TirListwise(TirChoice):
    """TIR-Judge, listwise (TIR Fig. 9 and 12): three or more, answered by `<preference>C</preference>`."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="three responses or more, in a random order",
        answer="`<preference>C</preference>`; A to Z, then AA, AB, ...",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf])",
        source="TIR-Judge section 4.2, Fig. 9, without tools Fig. 12",
    )

    kind: ClassVar[str] = "listwise"

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        if len(task.candidates) < 3:
            raise ValueError(
                f"a list has at least three responses; task {task.id!r} has {len(task.candidates)}"
            )
        return self._ordered(task)
