"""The judge-wise reward of JudgeLRM, term by term (JudgeLRM section 3.2, Eq. 1 to 5, and Eq. 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tirjudge_environments.formats.judgelrm import read_scores, tags_in_order, whole_numbers
from tirjudge_environments.types import Malformed, Reward

Rules = Literal["paper", "zero", "released"]
"""What Eq. 5 leaves open, a format failure: `paper` adds up all terms as printed, `zero` gives no content
then, and `released` is the authors' code: content -2.0 then, scores from 0, and a tie counts as a win of the
first response on both sides."""

Terms = Literal["paper", "relation-only", "modified", "changed"]
"""The sizes of the content terms: Eq. 2 to 4, the ablation of Table 4, those of Table 10 and of Table 11."""

FAILED = -2.0
"""The content of a format failure under the `released` rules."""
NEAR = 2
"""The sum of both scores' distances up to which they count as near the gold ones."""
LONG = 120
"""Tokens beyond which Eq. 9 rewards the reasoning."""


@dataclass(frozen=True, slots=True)
class Content:
    """The sizes of the terms of Eq. 2 to 4."""

    match: float
    mismatch: float
    exact: float
    near: float
    confident: float


CONTENT: dict[Terms, Content] = {
    "paper": Content(match=2.0, mismatch=-1.5, exact=1.0, near=0.6, confident=0.2),
    "relation-only": Content(match=2.0, mismatch=-1.5, exact=0.0, near=0.0, confident=0.0),
    "modified": Content(match=1.1, mismatch=-1.1, exact=1.0, near=0.5, confident=0.4),
    "changed": Content(match=1.0, mismatch=-1.5, exact=2.0, near=1.5, confident=1.8),
}


def judgelrm_reward(text: str, gold: tuple[float, float], *, terms: Terms, rules: Rules) -> Reward:
    """Eq. 5 for what the judge wrote, prefill included; `gold` are the gold scores in the order shown.

    The parts are `format`, `relation`, `absolute` and `confidence`, whose sum is the total, and `correct`,
    which is 1 where the relation matched. "Matched" is what Eq. 3 and 4 ask for, not the number 2.
    """
    form = format_reward(text, lowest=0 if rules == "released" else 1)
    scores = read_scores(text, 2)
    relation, absolute, confidence = CONTENT[terms].mismatch, 0.0, 0.0
    matched = not isinstance(scores, Malformed) and _relation(scores, rules) == _relation(gold, rules)
    if not isinstance(scores, Malformed) and matched:
        relation = CONTENT[terms].match
        absolute = _absolute(scores, gold, CONTENT[terms])
        confidence = CONTENT[terms].confident * (_margin(scores) >= _margin(gold))
    if form < 0 and rules != "paper":
        relation, absolute, confidence = (FAILED if rules == "released" else 0.0), 0.0, 0.0
    parts = {"format": form, "relation": relation, "absolute": absolute, "confidence": confidence}
    return Reward(total=sum(parts.values()), parts={"correct": float(matched), **parts})


def format_reward(text: str, *, lowest: int = 1) -> float:
    """Eq. 1: 1.0, or -0.5 for a score that is none of `lowest` to 10, or -1.0 for tags out of order."""
    if not tags_in_order(text):
        return -1.0
    return 1.0 if whole_numbers(text, lowest, 10) else -0.5


def length_reward(tokens: int, *, cut: bool) -> float:
    """Eq. 9: -1.0 where the token limit was reached, else 0.2 beyond 120 tokens, else 0."""
    if cut:
        return -1.0
    return 0.2 if tokens > LONG else 0.0


def _relation(scores: tuple[float, ...], rules: Rules) -> int:
    first, second = scores
    if rules == "released":
        return int(first >= second)
    return (first > second) - (first < second)


def _absolute(scores: tuple[float, ...], gold: tuple[float, ...], content: Content) -> float:
    distance = sum(abs(score - wanted) for score, wanted in zip(scores, gold, strict=True))
    if distance == 0:
        return content.exact
    return content.near if distance <= NEAR else 0.0


def _margin(scores: tuple[float, ...]) -> float:
    return abs(scores[0] - scores[1])
