"""What the text-only judges of pairs share: two responses, and the orders that they are shown in."""

from __future__ import annotations

from tirjudge_environments.formats.text_only import TextOnly
from tirjudge_environments.orders import Order, ordered_views, require_pair
from tirjudge_environments.types import JudgeTask, View


class TextPair(TextOnly):
    """A judge without tools that sees two responses at once."""

    order: Order = "random"
    """Of the responses: one order drawn from (seed, task id); as given; or as given and reversed."""
    seed: int = 0

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        require_pair(task)
        return ordered_views(task, self.order, self.seed)
