"""TIR-Judge's pointwise format: a score from 1 to 10 for each response alone (TIR Fig. 7 and 10)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.rewards import (
    failed,
    incomparable,
    label_scores_highest,
    tir_reward,
    tools_in_order,
)
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.orders import single_views
from tirjudge_environments.types import Episode, JudgeTask, Score, Unscored, Verdict, View

_NUMBER = re.compile(r"[0-9]{1,2}(\.[0-9]{1,6})?", re.ASCII)


class TirPointwise(TirFormat):
    """A format in which the judge sees one response and answers `<score>7</score>`, from 1 to 10.

    The score may have decimals.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<score>7</score>`, from 1 to 10, decimals allowed",
        reward="Rc * (0.1 + 0.9 * [Rt and Rf]); Rc for all views if the better one scores higher",
        source="TIR-Judge section 4.2, Fig. 7, without tools Fig. 10",
    )

    kind: ClassVar[str] = "pointwise"
    tag: ClassVar[str] = "score"

    @property
    def linked(self) -> bool:
        return True

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, view: View, answer: str) -> Verdict | None:
        if not _NUMBER.fullmatch(answer) or not 1 <= float(answer) <= 10:
            return None
        return Verdict(scores={view.order[0]: float(answer)})

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> tuple[Score, ...]:
        """Score all views together, since the labelled response must score highest (TIR Eq. 3)."""
        unscored = _unscored(episode)
        if unscored is not None:
            return tuple(unscored for _ in episode.trajectories)
        verdicts = [self.replay(trajectory) for trajectory in episode.trajectories]
        correct = label_scores_highest(episode.task, verdicts)
        return tuple(
            tir_reward(
                correct=correct,
                well_formed=self.well_formed(episode.task, trajectory),
                tools_in_order=tools_in_order(trajectory),
            )
            for trajectory in episode.trajectories
        )


def _unscored(episode: Episode) -> Unscored | None:
    down = (failed(trajectory) for trajectory in episode.trajectories)
    return incomparable(episode) or next((reason for reason in down if reason is not None), None)
