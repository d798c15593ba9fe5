"""TIR-Judge's formats that compare: the better of two responses, or the best of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.rewards import (
    NO_TOOL_DOMAINS,
    failed,
    tir_reward,
    tools_in_order,
    unlabelled,
)
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import Order, letters, ordered_views, require_pair
from tirjudge_environments.types import (
    Episode,
    Evidence,
    JudgeTask,
    Reward,
    Score,
    Trajectory,
    Unscored,
    Verdict,
    View,
)

RIGHT = "right"
"""The part of the reward that tells whether the verdict is right by the label alone; present if `consistency`
or `evidence` asks more of a reward."""


class TirChoice(TirFormat):
    """A TIR-Judge format in which the judge sees every response under a letter and names the best one."""

    tag: ClassVar[str] = "preference"

    order: Order = "random"
    """Order of the responses: one permutation drawn from (seed, task id); as given; or as given and
    reversed."""
    seed: int = 0
    consistency: bool = False
    """Reward a view only if the verdict of the other order is right too, as J1's consistency reward does (J1
    section 2.3). Our own option for TIR's formats; it needs `order = both`."""
    evidence: Literal["off", "recorded", "required"] = "off"
    """Run every successful program a second time with the responses exchanged, which takes as long as the
    first run. `recorded` only stores whether the output changes, see `Trajectory.evidence`; `required` also
    rewards a right verdict only if it does. The rows of domains without tools need no evidence. Our own
    option."""

    @model_validator(mode="after")
    def _rewards_fit(self) -> Self:
        if self.consistency and self.order != "both":
            raise ValueError("consistency compares both orders: set order to `both`")
        if self.evidence != "off" and (self.exact or not self.bindings):
            raise ValueError("evidence exchanges the variables of programs, which `bindings` gives them")
        return self

    @property
    def linked(self) -> bool:
        return self.consistency

    def verdict(self, view: View, answer: str) -> Verdict | None:
        shown = dict(zip(letters(len(view.order)), view.order, strict=True))
        return Verdict(choice=shown[answer]) if answer in shown else None

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> tuple[Score, ...]:
        scores = [self._score_alone(episode, trajectory) for trajectory in episode.trajectories]
        if not self.consistency:
            return tuple(scores)
        rewards = [score for score in scores if isinstance(score, Reward)]
        if len(rewards) < len(scores):
            # The reward of each view depends on the other view, so one without a score leaves both without.
            unscored = next(score for score in scores if isinstance(score, Unscored))
            return tuple(unscored for _ in scores)
        if all(reward.parts["correct"] for reward in rewards):
            return tuple(rewards)
        return tuple(replace(reward, total=0.0, parts={**reward.parts, "correct": 0.0}) for reward in rewards)

    def _score_alone(self, episode: Episode, trajectory: Trajectory) -> Score:
        """Return the score of one view, without the other order."""
        task = episode.task
        unscored = unlabelled(episode) or failed(trajectory)
        if unscored is not None:
            return unscored
        verdict = self.replay(trajectory)
        right = verdict is not None and verdict.choice == task.label
        needed, evidence = self._needs_evidence(task), trajectory.evidence
        shown = not needed or evidence is Evidence.SEPARATES
        reward = tir_reward(
            correct=right and shown,
            well_formed=self.well_formed(task, trajectory),
            tools_in_order=tools_in_order(trajectory),
        )
        if not (self.consistency or self.evidence == "required"):
            return reward
        # `correct` decides which groups teach; this part keeps the plain accuracy visible.
        # MISSING settles nothing: in place of the verdict the judge could have written a program.
        settled = needed and evidence in (Evidence.TIE, Evidence.FAILED)
        return replace(reward, parts={**reward.parts, RIGHT: float(right)}, settled=settled)

    def _needs_evidence(self, task: JudgeTask) -> bool:
        return self.evidence == "required" and self.uses_tools(task) and task.domain not in NO_TOOL_DOMAINS

    def _exchanged(self, task: JudgeTask, view: View) -> dict[str, Any] | None:
        if self.evidence == "off":
            return None
        return self._bindings(task, replace(view, order=(*view.order[1:], view.order[0])))

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
