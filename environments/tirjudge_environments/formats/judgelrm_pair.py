"""JudgeLRM, pairs: reasoning, then a score from 1 to 10 for each of two responses (JudgeLRM Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from tirjudge_environments.formats.judgelrm import PREFILL, read_scores
from tirjudge_environments.formats.judgelrm_reward import Rules, Terms, judgelrm_reward, length_reward
from tirjudge_environments.formats.text_only import Wording, written
from tirjudge_environments.formats.text_pair import TextPair
from tirjudge_environments.judge_card import JudgeCard
from tirjudge_environments.orders import Order
from tirjudge_environments.rewards import failed
from tirjudge_environments.types import (
    By,
    Episode,
    JudgeTask,
    Malformed,
    Score,
    StopReason,
    Trajectory,
    Unscored,
    Verdict,
    View,
)


class JudgeLrmPair(TextPair):
    """Two responses and their scores; the higher one is the choice, and equal scores are a tie."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in the order given",
        answer="`<answer>8</answer><answer>3</answer>`, from 1 to 10",
        reward="format + relation + absolute + confidence, against gold scores; optionally length",
        source="JudgeLRM section 3.2, Fig. 2, Eq. 1 to 5 and 9",
    )

    order: Order = "given"
    terms: Terms = "paper"
    """Sizes of the content terms; `relation-only` can do with labels where there are no gold scores."""
    rules: Rules = "paper"
    """What a format failure leaves of the content, and what a tie is."""
    length: bool = False
    """Whether the length reward of Eq. 9 is added."""
    max_tokens: int = Field(default=2048, ge=1)
    """The limit at which Eq. 9 sees a dialogue as cut; the paper's."""

    @property
    def wording(self) -> Wording:
        return Wording("judgelrm-pair", system="judgelrm-pair-system", prefill=PREFILL)

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
            return Unscored("the length reward needs the number of tokens, which the model did not tell")
        cut = trajectory.stop is StopReason.TOKEN_BUDGET or tokens >= self.max_tokens
        extra = length_reward(tokens, cut=cut)
        return replace(reward, total=reward.total + extra, parts={**reward.parts, "length": extra})

    def _gold(self, task: JudgeTask) -> Sequence[float] | Unscored:
        """Gold scores by candidate; for a reward of the relation alone, a label stands for them."""
        scores = task.gold.get("scores")
        if scores is not None and len(scores) == len(task.candidates):
            return [float(score) for score in scores]
        if self.terms == "relation-only" and task.label is not None:
            return [float(index == task.label) for index in range(len(task.candidates))]
        return Unscored("the task has no gold scores, one for each response")


def _tokens(trajectory: Trajectory) -> int | None:
    """What the judge wrote, its short answer included, as the authors' code counts; None if not known."""
    ids = [segment.ids for segment in trajectory.segments if segment.by is By.MODEL]
    if any(one is None for one in ids):
        return trajectory.usage.completion_tokens or None
    return sum(len(one or ()) for one in ids)
