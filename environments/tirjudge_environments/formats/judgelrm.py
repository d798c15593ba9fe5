"""The judges of JudgeLRM: scores in `<answer>` elements after the thinking, and their reward."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Literal

from pydantic import Field

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.rewards import failed
from tirjudge_environments.formats.text_only import TextOnly, TextPair, Wording, written
from tirjudge_environments.orders import Order, single_views
from tirjudge_environments.parsing import behind_thinking, elements
from tirjudge_environments.types import (
    THINK,
    By,
    Episode,
    JudgeTask,
    Malformed,
    Reward,
    Score,
    StopReason,
    Trajectory,
    Unscored,
    Verdict,
    View,
)

_NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_TAG = re.compile(r"</?(?:think|answer)>")
_IN_ORDER = ["<think>", "</think>", *2 * ["<answer>", "</answer>"]]


def read_scores(text: str, count: int) -> tuple[float, ...] | Malformed:
    """Read exactly `count` scores after the thinking, in order (JudgeLRM Fig. 2 and 4).

    Numbers outside the range that the prompt asks for are read too, since they still order the responses.
    """
    answer = behind_thinking(text)
    if answer is None:
        return Malformed("the thinking was not closed")
    bodies = [element.body for element in elements(answer, "answer")]
    if len(bodies) != count:
        return Malformed(f"{len(bodies)} <answer> elements behind the thinking, not {count}")
    if not all(_NUMBER.fullmatch(body) for body in bodies):
        return Malformed("an <answer> that is no number")
    return tuple(float(body) for body in bodies)


def tags_in_order(text: str) -> bool:
    """Return True for one thinking followed by two answers, and no further tags (Eq. 1, first case)."""
    return [tag[0] for tag in islice(_TAG.finditer(text), len(_IN_ORDER) + 1)] == _IN_ORDER


def whole_numbers(text: str, lowest: int, highest: int) -> bool:
    """Return True if every answer is a whole number in this range (Eq. 1, second case)."""
    bodies = [element.body for element in elements(text, "answer")]
    return all(re.fullmatch("[0-9]{1,2}", body) and lowest <= int(body) <= highest for body in bodies)


Rules = Literal["paper", "zero", "released"]
"""The content after a format failure, which Eq. 5 leaves open.

`paper` adds up all terms as printed, `zero` gives no content, and `released` follows the authors' code: a
content of -2.0, scores from 0, and a tie counts as a win of the first response on both sides.
"""

Terms = Literal["paper", "relation-only", "modified", "changed"]
"""The sizes of the content terms: of Eq. 2 to 4, of the ablation in Table 4, of Table 10 and of Table 11."""

FAILED = -2.0
"""The content of a format failure under the `released` rules."""
NEAR = 2
"""The largest sum of both scores' distances at which they count as near the gold scores."""
LONG = 120
"""The number of tokens above which Eq. 9 rewards the reasoning."""


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
    """Return the reward of Eq. 5 (JudgeLRM section 3.2, Eq. 1 to 5).

    `text` is what the judge wrote, prefill included; `gold` are the gold scores in the order shown. The parts
    are `format`, `relation`, `absolute` and `confidence`, whose sum is the total, and `correct`, which is 1
    if the relation matched. Eq. 3 and 4 depend on the match itself, not on the number 2 of Eq. 2.
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
    """Return Eq. 1: 1.0, or -0.5 for a score outside `lowest` to 10, or -1.0 for tags out of order."""
    if not tags_in_order(text):
        return -1.0
    return 1.0 if whole_numbers(text, lowest, 10) else -0.5


def length_reward(tokens: int, *, cut: bool) -> float:
    """Return Eq. 9: -1.0 if the token limit was reached, else 0.2 above 120 tokens, else 0."""
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


class JudgeLrmPair(TextPair):
    """JudgeLRM on pairs: reasoning, then a score from 1 to 10 for each response (JudgeLRM Fig. 2).

    The judge's turn begins with `<think>`, as in the figure. The higher score is the choice; equal scores are
    a tie.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in the order given",
        answer="`<answer>8</answer><answer>3</answer>`, from 1 to 10",
        reward="format + relation + absolute + confidence, against gold scores; optionally length",
        source="JudgeLRM section 3.2, Fig. 2, Eq. 1 to 5 and 9",
    )

    order: Order = "given"
    terms: Terms = "paper"
    """Sizes of the content terms; `relation-only` also works with labels instead of gold scores."""
    rules: Rules = "paper"
    """The content after a format failure, and the meaning of a tie."""
    length: bool = False
    """True adds the length reward of Eq. 9."""
    max_tokens: int = Field(default=2048, ge=1)
    """The paper's limit at which Eq. 9 treats a dialogue as cut."""

    @property
    def wording(self) -> Wording:
        return Wording("judgelrm-pair", system="judgelrm-pair-system", prefill=THINK)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = read_scores(text, 2)
        if isinstance(scores, Malformed):
            return scores
        named = dict(zip(view.order, scores, strict=True))
        best = max(named, key=lambda index: named[index])
        tie = scores[0] == scores[1]
        return Verdict(choice=None if tie else best, scores=named, tie=tie)

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        return [tuple(self._score(episode, one) for one in episode.trajectories) for episode in group]

    def _score(self, episode: Episode, trajectory: Trajectory) -> Score:
        gold, down = self._gold(episode.task), failed(trajectory)
        if down is not None:
            return down
        if isinstance(gold, Unscored):
            return gold
        first, second = trajectory.view.order
        reward = judgelrm_reward(
            written(trajectory), (gold[first], gold[second]), terms=self.terms, rules=self.rules
        )
        if not self.length:
            return reward
        tokens = _tokens(trajectory)
        if tokens is None:
            return Unscored("the length reward needs the number of tokens, which the endpoint did not return")
        cut = trajectory.stop is StopReason.TOKEN_BUDGET or tokens >= self.max_tokens
        extra = length_reward(tokens, cut=cut)
        return replace(reward, total=reward.total + extra, parts={**reward.parts, "length": extra})

    def _gold(self, task: JudgeTask) -> Sequence[float] | Unscored:
        """Return gold scores by candidate; for a reward of the relation alone, a label replaces them."""
        scores = task.gold.get("scores")
        if scores is not None and len(scores) == len(task.candidates):
            return [float(score) for score in scores]
        if self.terms == "relation-only" and task.label is not None:
            return [float(index == task.label) for index in range(len(task.candidates))]
        return Unscored("the task has no gold scores, one for each response")


def _tokens(trajectory: Trajectory) -> int | None:
    """Count the judge's tokens, answer included, as the authors' code does; None if unknown."""
    ids = [segment.ids for segment in trajectory.segments if segment.by is By.MODEL]
    if any(one is None for one in ids):
        return trajectory.usage.completion_tokens or None
    return sum(len(one or ()) for one in ids)


class JudgeLrmSingle(TextOnly):
    """JudgeLRM on single responses: a score from 1 to 10 for each alone (JudgeLRM Fig. 4).

    The judge's turn begins with `<think>`, as in the figure. The scores are compared afterwards. This is for
    inference only, since the paper trains on pairs.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<answer>8</answer>`, from 1 to 10; the scores are compared",
        reward="none: inference only",
        source="JudgeLRM section 4.3, Fig. 4",
    )

    @property
    def wording(self) -> Wording:
        return Wording("judgelrm-single", system="judgelrm-single-system", prefill=THINK)

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = read_scores(text, 1)
        return scores if isinstance(scores, Malformed) else Verdict(scores={view.order[0]: scores[0]})

    def score(self, group: Sequence[Episode], answers: Mapping[str, str]) -> list[tuple[Score, ...]]:
        reason = Unscored("JudgeLRM has no reward for a single response; train on pairs")
        return [tuple(reason for _ in episode.trajectories) for episode in group]
