"""What a judge format is, in the columns of the table in its documentation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JudgeCard:
    """A format describes itself as its class attribute `card`, in Markdown without line breaks."""

    views: str
    """What one rollout sees."""
    answer: str
    """How it answers."""
    reward: str
    """What the answer is worth in training."""
    source: str
    """Paper, section and figures."""
