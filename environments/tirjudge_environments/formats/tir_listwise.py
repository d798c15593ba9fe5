"""TIR-Judge, listwise: which of three or more responses is the best (TIR Fig. 9 and 12)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.tir_choice import TirChoice
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.types import JudgeTask, View


class TirListwise(TirChoice):
    """Three responses or more, A, B, C, ...; answered by `<preference>C</preference>`."""

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
