"""J1 PaS: a score for each of two responses; the higher one is the verdict (J1 section 2.5, Fig. 9)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.j1_pairwise import J1Pairwise, pair_scores
from tirjudge_environments.formats.text_only import Wording
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.types import JudgeTask, Malformed, Verdict, View


class J1PaS(J1Pairwise):
    """Equal scores are a tie, which is never right."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="`<score_A> 7.5 </score_A> <score_B> 4 </score_B>`, from 0 to 10 in tenths",
        reward="1 if the better response scores higher; options as PaV",
        source="J1 section 2.5, Fig. 9",
    )

    @property
    def wording(self) -> Wording:
        return Wording("j1-pas")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = pair_scores(view, text)
        if isinstance(scores, Malformed):
            return scores
        first, second = view.order
        if scores[first] == scores[second]:
            return Verdict(scores=scores, tie=True)
        return Verdict(choice=first if scores[first] > scores[second] else second, scores=scores)
