"""What J1's judges of pairs share: both orders in one batch, and consistency over them (J1 section 2.3)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from tirjudge_environments.formats.j1 import J1, said, tenths
from tirjudge_environments.formats.text_pair import TextPair
from tirjudge_environments.orders import Order
from tirjudge_environments.types import Episode, Malformed, View


class J1Pairwise(J1, TextPair):
    """A pair in both orders: two views of a task, each with a baseline of its own."""

    order: Order = "both"
    consistency: bool = False
    """Whether a view is right only if the other order is right too: the verdict consistency reward."""

    @model_validator(mode="after")
    def _both_orders(self) -> Self:
        if self.consistency and self.order != "both":
            raise ValueError("consistency is over both orders: leave `order` at `both`")
        return self

    @property
    def linked(self) -> bool:
        return self.consistency

    def right(self, episode: Episode) -> tuple[bool, ...]:
        each = super().right(episode)
        return tuple(all(each) for _ in each) if self.consistency else each


def preferred(view: View, text: str, steps: tuple[str, ...]) -> int | Malformed:
    """The candidate that `<answer> [[A]] </answer>` names."""
    answer = said(text, "answer", steps)
    if isinstance(answer, Malformed):
        return answer
    shown = {"[[A]]": view.order[0], "[[B]]": view.order[1]}
    return shown.get(answer, Malformed("an <answer> that is neither [[A]] nor [[B]]"))


def pair_scores(view: View, text: str) -> dict[int, float] | Malformed:
    """What `<score_A>` and `<score_B>` say, by candidate."""
    scores: dict[int, float] = {}
    for name, candidate in zip(("score_A", "score_B"), view.order, strict=True):
        score = tenths(said(text, name, ()), name)
        if isinstance(score, Malformed):
            return score
        scores[candidate] = score
    return scores
