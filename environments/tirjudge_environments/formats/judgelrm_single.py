"""JudgeLRM, single: reasoning, then a score from 1 to 10 for one response alone (JudgeLRM Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tirjudge_environments.formats.judgelrm import PREFILL, read_scores
from tirjudge_environments.formats.text_only import TextOnly, Wording
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.orders import single_views
from tirjudge_environments.types import Episode, JudgeTask, Malformed, Score, Unscored, Verdict, View


class JudgeLrmSingle(TextOnly):
    """Each response alone; the scores are compared afterwards. For inference: the paper trains on pairs."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<answer>8</answer>`, from 1 to 10; the scores are compared",
        reward="none: inference only",
        source="JudgeLRM section 4.3, Fig. 4",
    )

    @property
    def wording(self) -> Wording:
        return Wording("judgelrm-single", system="judgelrm-single-system", prefill=PREFILL)

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = read_scores(text, 1)
        return scores if isinstance(scores, Malformed) else Verdict(scores={view.order[0]: scores[0]})

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        reason = Unscored("JudgeLRM has no reward for a single response; train on pairs")
        return [tuple(reason for _ in episode.trajectories) for episode in group]
