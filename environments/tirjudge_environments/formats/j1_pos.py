"""J1 PoS: a score for one response alone, trained from pairs (J1 section 2.5, Fig. 11)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.j1 import J1, said, tenths
from tirjudge_environments.formats.text_only import Wording
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.orders import single_views
from tirjudge_environments.rewards import label_scores_highest
from tirjudge_environments.types import Episode, JudgeTask, Malformed, Verdict, View


class J1PoS(J1):
    """The views of a pair are judged together: both are right if the better response scores higher."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<score> 7.5 </score>`, from 0 to 10 in tenths",
        reward="1 for both views if the better response scores higher; optionally negative, format",
        source="J1 section 2.5, Fig. 11",
    )

    @property
    def wording(self) -> Wording:
        return Wording("j1-pos")

    @property
    def linked(self) -> bool:
        return True

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        score = tenths(said(text, "score", ()), "score")
        return score if isinstance(score, Malformed) else Verdict(scores={view.order[0]: score})

    def right(self, episode: Episode) -> tuple[bool, ...]:
        right = label_scores_highest(episode.task, [one.verdict for one in episode.trajectories])
        return tuple(right for _ in episode.trajectories)
