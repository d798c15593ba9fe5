"""The judges of JudgeLRM: scores in `<answer>` elements after the thinking, and their reward."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, Literal

from pydantic import Field

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import Scored, Term, failed, length_reward
from tirjudge_environments.formats.text_only import TextOnly, TextPair, Wording, written
from tirjudge_environments.orders import Order, single_views
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.turn_reader import behind_thinking, elements
from tirjudge_environments.types import (
    THINK,
    Episode,
    JudgeTask,
    Malformed,
    Trajectory,
    Unscored,
    Verdict,
    View,
)

_MARKS = ("answer", "think")
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
        reason = f"{len(bodies)} <answer> elements behind the thinking, not {count}"
        return Malformed(reason, contested=len(bodies) > count)
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
"""The largest sum of distances from the gold scores at which both scores count as near."""


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


def judgelrm_parts(text: str, gold: tuple[float, float], *, terms: Terms, rules: Rules) -> dict[str, float]:
    """Return the terms of Eq. 5, whose sum is the reward (JudgeLRM section 3.2, Eq. 1 to 5).

    `text` is what the judge wrote, prefill included; `gold` are the gold scores in the order shown. The
    terms are `format`, `relation`, `absolute` and `confidence`. Eq. 3 and 4 depend on the match of the
    relation, not on the number 2 of Eq. 2.
    """
    form = format_reward(text, lowest=0 if rules == "released" else 1)
    scores = read_scores(text, 2)
    relation, absolute, confidence = CONTENT[terms].mismatch, 0.0, 0.0
    if not isinstance(scores, Malformed) and matches(scores, gold, rules):
        relation = CONTENT[terms].match
        absolute = _absolute(scores, gold, CONTENT[terms])
        confidence = CONTENT[terms].confident * (_margin(scores) >= _margin(gold))
    if form < 0 and rules != "paper":
        relation, absolute, confidence = (FAILED if rules == "released" else 0.0), 0.0, 0.0
    return {"format": form, "relation": relation, "absolute": absolute, "confidence": confidence}


def matches(scores: tuple[float, ...] | Malformed, gold: tuple[float, ...], rules: Rules) -> bool:
    """Return True if scores stand to each other as the gold scores do."""
    return not isinstance(scores, Malformed) and _relation(scores, rules) == _relation(gold, rules)


def format_reward(text: str, *, lowest: int = 1) -> float:
    """Return Eq. 1: 1.0, or -0.5 for a score outside `lowest` to 10, or -1.0 for tags out of order."""
    if not tags_in_order(text):
        return -1.0
    return 1.0 if whole_numbers(text, lowest, 10) else -0.5


def _relation(scores: tuple[float, ...], rules: Rules) -> int:
    first, second = scores
    return int(first >= second) if rules == "released" else (first > second) - (first < second)


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

    marks: ClassVar[tuple[str, ...]] = _MARKS
    wording: ClassVar[Wording] = Wording("judgelrm-pair", system="judgelrm-pair-system", prefill=THINK)

    order: Order = "given"
    terms: RewardOnly[Terms] = "paper"
    """Sizes of the content terms; `relation-only` also works with labels instead of gold scores."""
    rules: RewardOnly[Rules] = "paper"
    """The content after a format failure, and the meaning of a tie."""
    length: RewardOnly[bool] = False
    """True adds the length reward of Eq. 9."""
    max_tokens: RewardOnly[int] = Field(default=2048, ge=1)
    """The paper's limit at which Eq. 9 treats a dialogue as cut."""

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = read_scores(text, 2)
        if isinstance(scores, Malformed):
            return scores
        named = dict(zip(view.order, scores, strict=True))
        best = max(named, key=lambda index: named[index])
        tie = scores[0] == scores[1]
        return Verdict(choice=None if tie else best, scores=named, tie=tie)

    @property
    def own_terms(self) -> Mapping[str, Term]:
        """The terms of Eq. 5, and that of Eq. 9 with the option `length`."""
        sizes = CONTENT[self.terms]
        ranges = {
            "format": (-1.0, 1.0),
            "relation": (min(sizes.mismatch, FAILED), sizes.match),
            "absolute": (0.0, sizes.exact),
            "confidence": (0.0, sizes.confident),
        }
        named = {name: Term(partial(self._part, name), low, high) for name, (low, high) in ranges.items()}
        if self.length:
            named["length"] = Term(lambda seen: length_reward(seen.trajectory, self.max_tokens), -1.0, 0.2)
        return named

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        return [failed(one) or self._scored(episode.task, one) for one in episode.trajectories]

    def _scored(self, task: JudgeTask, trajectory: Trajectory) -> Scored | Unscored:
        gold = self._gold(task)
        if isinstance(gold, Unscored):
            return gold
        shown = tuple(gold[index] for index in trajectory.view.order)
        right = matches(read_scores(written(trajectory), 2), shown, self.rules)
        return Scored(task, trajectory, right, right)

    def _part(self, name: str, seen: Scored) -> float:
        gold = self._gold(seen.task)
        assert not isinstance(gold, Unscored)  # see `_scored`
        first, second = seen.trajectory.view.order
        shown = (gold[first], gold[second])
        return judgelrm_parts(written(seen.trajectory), shown, terms=self.terms, rules=self.rules)[name]

    def _gold(self, task: JudgeTask) -> Sequence[float] | Unscored:
        """Return gold scores by candidate; for a reward of the relation alone, a label replaces them."""
        scores = task.gold.get("scores")
        if scores is not None and len(scores) == len(task.candidates):
            return [float(score) for score in scores]
        if self.terms == "relation-only" and task.label is not None:
            return [float(index == task.label) for index in range(len(task.candidates))]
        return Unscored("the task has no gold scores, one for each response")


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
    scale: ClassVar[tuple[float, float]] = (1.0, 10.0)
    marks: ClassVar[tuple[str, ...]] = _MARKS
    wording: ClassVar[Wording] = Wording("judgelrm-single", system="judgelrm-single-system", prefill=THINK)

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = read_scores(text, 1)
        return scores if isinstance(scores, Malformed) else Verdict(scores={view.order[0]: scores[0]})

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        reason = Unscored("JudgeLRM has no reward for a single response; train on pairs")
        return [reason for _ in episode.trajectories]
