"""J1 PaVS: scores for two responses and a verdict, which alone counts (J1 section 2.5, Fig. 10)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.j1_pairwise import J1Pairwise, pair_scores, preferred
from tirjudge_environments.formats.text_only import Wording
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.types import JudgeTask, Malformed, Verdict, View


class J1PaVS(J1Pairwise):
    """Scores help the judge and are kept where they can be read; the verdict stands without them."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="scores as PaS, then a verdict as PaV",
        reward="as PaV, from the verdict alone",
        source="J1 section 2.5, Fig. 10",
    )

    @property
    def wording(self) -> Wording:
        return Wording("j1-pavs")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        choice, scores = preferred(view, text, self.steps), pair_scores(view, text)
        if isinstance(choice, Malformed):
            return choice
        return Verdict(choice=choice, scores={} if isinstance(scores, Malformed) else scores)
