"""TIR-Judge, pairwise: which of two responses is better (TIR Fig. 8 and 11)."""

from __future__ import annotations

from typing import ClassVar

from tirjudge_environments.formats.tir_choice import TirChoice
from tirjudge_environments.orders import require_pair
from tirjudge_environments.types import JudgeTask, View


class TirPairwise(TirChoice):
    """Two responses, A and B; answered by `<preference>A</preference>`."""

    kind: ClassVar[str] = "pairwise"

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        require_pair(task)
        return self._ordered(task)
