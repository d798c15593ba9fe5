"""The judges of J1: verdicts and scores after the thinking, with rewards of 0 and 1 (J1 section 2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import (
    Scored,
    Term,
    correct,
    failed,
    incomparable,
    label_scores_highest,
    together,
)
from tirjudge_environments.formats.text_only import TextOnly, TextPair, Wording, written
from tirjudge_environments.orders import Order, single_views
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.turn_reader import behind, behind_thinking, elements, tag_count
from tirjudge_environments.types import Episode, JudgeTask, Malformed, Unscored, Verdict, View

_TENTHS = re.compile(r"10(\.0{1,9})?|[0-9](\.[0-9]0{0,8})?", re.ASCII)


class J1(TextOnly):
    """The base class of J1's judges: a reward of 1 if right and 0 if wrong, plus two optional terms."""

    marks: ClassVar[tuple[str, ...]] = (
        *("answer", "score", "score_A", "score_B"),
        *("think", "plan", "execution"),
    )

    negative_reward: RewardOnly[float] = Field(default=0.0, le=0.0)
    """The reward of a wrong answer instead of 0 (J1 Table 4). The paper does not print its size."""
    format_reward: RewardOnly[float] = Field(default=0.0, ge=0.0)
    """Added if the thinking is in its tags, once (J1 section 2.3, Table 4). The paper prints no size."""

    def right(self, episode: Episode) -> tuple[bool, ...]:
        """Return for each view whether it, or all views together, is right. The task has a label."""
        label = episode.task.label
        verdicts = (trajectory.verdict for trajectory in episode.trajectories)
        return tuple(verdict is not None and verdict.choice == label for verdict in verdicts)

    @property
    def own_terms(self) -> Mapping[str, Term]:
        return {
            "correct": Term(correct),
            "format": Term(
                lambda seen: float(thought(written(seen.trajectory), self.steps)), weight=self.format_reward
            ),
        }

    def equation(self, parts: Mapping[str, float]) -> float:
        return super().equation(parts) + self.negative_reward * (1.0 - parts["correct"])

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        views = [
            incomparable(episode) or failed(one) or Scored(episode.task, one, right, right)
            for one, right in zip(episode.trajectories, self.right(episode), strict=True)
        ]
        return together(views) if self.linked else views

    @property
    def steps(self) -> tuple[str, ...]:
        """The tags around the thinking, in order."""
        return ("think",)


def thought(text: str, steps: Sequence[str]) -> bool:
    """Return True if each step is in its tags, exactly once and in order, from the start of the text."""
    end = 0
    for step in steps:
        found = elements(text, step)
        if tag_count(text, step) != (1, 1) or len(found) != 1 or text[end : found[0].start].strip():
            return False
        end = found[0].end
    return True


def said(text: str, name: str, steps: Sequence[str]) -> str | Malformed:
    """Return the content of the elements of this name after the thinking; they must all be equal."""
    answer = behind_thinking(text)
    for step in steps:
        answer = behind(answer, step) if answer is not None else None
    if answer is None:
        return Malformed("the thinking was not closed")
    bodies = {element.body for element in elements(answer, name)}
    if len(bodies) == 1:
        return bodies.pop()
    return Malformed(
        f"<{name}> elements that contradict each other" if bodies else f"no <{name}> behind the thinking",
        contested=bool(bodies),
    )


def tenths(body: str | Malformed, name: str) -> float | Malformed:
    """Parse a score from 0 to 10 with at most one decimal other than 0."""
    if isinstance(body, Malformed):
        return body
    if not _TENTHS.fullmatch(body):
        return Malformed(f"a <{name}> that is no number from 0 to 10 in tenths")
    return float(body)


class J1Pairwise(J1, TextPair):
    """The base class of J1's pairwise judges: both orders are views, each with its own baseline."""

    order: Order = "both"
    consistency: RewardOnly[bool] = False
    """The verdict consistency reward: a view is right only if the other order is right too."""

    @model_validator(mode="after")
    def _both_orders(self) -> Self:
        if self.consistency and self.order != "both":
            raise ValueError("consistency compares both orders: leave `order` at `both`")
        return self

    @property
    def linked(self) -> bool:
        return self.consistency


def preferred(view: View, text: str, steps: tuple[str, ...]) -> int | Malformed:
    """Return the candidate that `<answer> [[A]] </answer>` names."""
    answer = said(text, "answer", steps)
    if isinstance(answer, Malformed):
        return answer
    shown = {"[[A]]": view.order[0], "[[B]]": view.order[1]}
    return shown.get(answer, Malformed("an <answer> that is neither [[A]] nor [[B]]"))


def pair_scores(view: View, text: str) -> dict[int, float] | Malformed:
    """Return the scores of `<score_A>` and `<score_B>` by candidate."""
    scores: dict[int, float] = {}
    for name, candidate in zip(("score_A", "score_B"), view.order, strict=True):
        score = tenths(said(text, name, ()), name)
        if isinstance(score, Malformed):
            return score
        scores[candidate] = score
    return scores


class J1PaV(J1Pairwise):
    """J1 PaV, the main recipe: thinking, then a verdict on a pair (J1 section 2.4, Fig. 7 and 8)."""

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="`<answer> [[A]] </answer>`",
        reward="1 for the right verdict; optionally only if both orders are right, negative, format",
        source="J1 section 2.4, Fig. 7; with `seed_prompt=plan` Fig. 8",
    )

    seed_prompt: Literal["thinking", "plan"] = "thinking"
    """The prompt of Fig. 7, or the plan and execution of EvalPlanner, Fig. 8; Table 4 swaps the numbers."""

    @property
    def wording(self) -> Wording:
        return Wording(f"j1-pav-{self.seed_prompt}")

    @property
    def steps(self) -> tuple[str, ...]:
        return ("think",) if self.seed_prompt == "thinking" else ("plan", "execution")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        choice = preferred(view, text, self.steps)
        return choice if isinstance(choice, Malformed) else Verdict(choice=choice)


class J1PaS(J1Pairwise):
    """J1 PaS: a score for each of two responses; the higher one is the verdict (J1 section 2.5, Fig. 9).

    Equal scores are a tie, which is never right.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="`<score_A> 7.5 </score_A> <score_B> 4 </score_B>`, from 0 to 10 in tenths",
        reward="1 if the better response scores higher; options as PaV",
        source="J1 section 2.5, Fig. 9",
    )
    wording: ClassVar[Wording] = Wording("j1-pas")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        scores = pair_scores(view, text)
        if isinstance(scores, Malformed):
            return scores
        first, second = view.order
        if scores[first] == scores[second]:
            return Verdict(scores=scores, tie=True)
        return Verdict(choice=first if scores[first] > scores[second] else second, scores=scores)


class J1PaVS(J1Pairwise):
    """J1 PaVS: scores for two responses and a verdict, which alone counts (J1 section 2.5, Fig. 10).

    Readable scores are kept in the result; unreadable ones do not invalidate the verdict.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="both responses, in both orders",
        answer="scores as PaS, then a verdict as PaV",
        reward="as PaV, from the verdict alone",
        source="J1 section 2.5, Fig. 10",
    )
    wording: ClassVar[Wording] = Wording("j1-pavs")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        choice, scores = preferred(view, text, self.steps), pair_scores(view, text)
        if isinstance(choice, Malformed):
            return choice
        return Verdict(choice=choice, scores={} if isinstance(scores, Malformed) else scores)


class J1PoS(J1):
    """J1 PoS: a score for one response alone, trained from pairs (J1 section 2.5, Fig. 11).

    The views of a pair are rewarded together: both are right if the better response scores higher.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="each response alone",
        answer="`<score> 7.5 </score>`, from 0 to 10 in tenths",
        reward="1 for both views if the better response scores higher; optionally negative, format",
        source="J1 section 2.5, Fig. 11",
    )
    scale: ClassVar[tuple[float, float]] = (0.0, 10.0)
    wording: ClassVar[Wording] = Wording("j1-pos")
    linked: ClassVar[bool] = True

    def views(self, task: JudgeTask) -> tuple[View, ...]:
        return single_views(task)

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        score = tenths(said(text, "score", ()), "score")
        return score if isinstance(score, Malformed) else Verdict(scores={view.order[0]: score})

    def right(self, episode: Episode) -> tuple[bool, ...]:
        right = label_scores_highest(episode.task, [one.verdict for one in episode.trajectories])
        return tuple(right for _ in episode.trajectories)
