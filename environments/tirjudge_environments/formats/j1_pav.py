"""J1 PaV: which of two responses is better, as a verdict (J1 section 2.4, Fig. 7 and 8)."""

from __future__ import annotations

from typing import ClassVar, Literal

from tirjudge_environments.formats.j1_pairwise import J1Pairwise, preferred
from tirjudge_environments.formats.text_only import Wording
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.types import JudgeTask, Malformed, Verdict, View


class J1PaV(J1Pairwise):
    """The primary recipe of J1: thoughts, then a verdict."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="`<answer> [[A]] </answer>`",
        reward="1 for the right verdict; optionally only if both orders are right, negative, format",
        source="J1 section 2.4, Fig. 7; with `seed_prompt=plan` Fig. 8",
    )

    seed_prompt: Literal["thinking", "plan"] = "thinking"
    """Fig. 7, or EvalPlanner's plan and execution, Fig. 8 (Table 4 swaps the figures' numbers)."""

    @property
    def wording(self) -> Wording:
        return Wording(f"j1-pav-{self.seed_prompt}")

    @property
    def steps(self) -> tuple[str, ...]:
        return ("think",) if self.seed_prompt == "thinking" else ("plan", "execution")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        choice = preferred(view, text, self.steps)
        return choice if isinstance(choice, Malformed) else Verdict(choice=choice)
