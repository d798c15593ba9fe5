"""TIR-Judge, pairwise: which of two responses is better (TIR Fig. 8 and 11)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.tir_choice import TirChoice
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.orders import require_pair
from tirjudge_environments.types import JudgeTask, View


class TirPairwise(TirChoice):
    """Two responses, A and B; answered by `<preference>A</preference>`."""

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
