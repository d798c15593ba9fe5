"""The rationale judge, whose reasons are rewarded for agreeing with human reasons (Rationale, Fig. 13)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from tirjudge_environments.base import JudgeCard
from tirjudge_environments.formats.reward_terms import Scored, Term, correct, failed
from tirjudge_environments.formats.text_only import TextPair, Wording
from tirjudge_environments.orders import letter
from tirjudge_environments.rationales import Matching, matching_ask, read_assessment, read_matching
from tirjudge_environments.registry import RewardOnly
from tirjudge_environments.turn_reader import behind_thinking
from tirjudge_environments.types import (
    Episode,
    JudgeTask,
    Malformed,
    Question,
    Trajectory,
    Unscored,
    Verdict,
    View,
)

EVALUATED = 5
"""The number of reasons that an evaluation looks at (section 2.3); training looks at all."""

_NAMED = re.compile(r"@?\bresponse ([12])\b", re.IGNORECASE)


class Rationale(TextPair):
    """A judge that gives reasons in order of importance, then one of five verdicts, from A>>B to B>>A.

    A task's `gold["checklist"]` holds the human reasons, in which `Response 1` is the first candidate, and
    `gold["strength"]` the strength of the preference: 2 for significantly, 1 for slightly, 0 for a tie, which
    has no label. Its `questions` go to a MetaJudge, which scores how well the judge's reasons express
    the human ones.
    """

    card: ClassVar[JudgeCard] = JudgeCard(
        views="two responses in one order",
        answer="a list of reasons and `\\boxed{A>>B}`, `A>B`, `A=B`, `B>A` or `B>>A`",
        reward="AP of the reasons, matched one to one with people's by another model, times the outcome",
        source="Rationale section 4.1, Eq. 1, 3 and 4, Fig. 9 and 13",
    )
    marks: ClassVar[tuple[str, ...]] = ("think", "RESULT_START", "RESULT_END", "\\boxed")
    wording: ClassVar[Wording] = Wording("rationale")

    reward: RewardOnly[Literal["hybrid", "outcome", "rationale"]] = "hybrid"
    """AP times the outcome (Eq. 4), or one of the factors alone as a control. `outcome` asks no MetaJudge."""
    exact: RewardOnly[bool] = False
    """Require the exact verdict of the five; otherwise only its direction is compared. The default is our
    reading: the paper says that the prediction matches the label."""
    top: RewardOnly[int | None] = Field(default=None, ge=1)
    """Match only the first `top` reasons; None: all. The paper evaluates 5 and trains on all."""

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        answer = behind_thinking(text)
        if answer is None:
            return Malformed("the thinking was not closed")
        read = read_assessment(answer)
        if isinstance(read, Malformed):
            return read
        parsed = {"reasons": list(read.reasons), "strength": read.strength}
        if not read.preferred:
            return Verdict(tie=True, parsed=parsed, contested=read.contested)
        choice = view.order["AB".index(read.preferred)]
        return Verdict(choice=choice, parsed=parsed, contested=read.contested)

    def questions(self, group: Sequence[Episode]) -> tuple[Question, ...]:
        """Return one question per list of reasons; equal lists share one."""
        asked = (
            self._question(episode.task, trajectory)
            for episode in group
            for trajectory in episode.trajectories
        )
        return tuple({question.key: question for question in asked if question is not None}.values())

    @property
    def own_terms(self) -> Mapping[str, Term]:
        """The outcome, AP and soft recall.

        Without a readable answer of the MetaJudge a trajectory is Unscored, and never 0.
        """
        if self.reward == "outcome":
            return {"correct": Term(correct)}
        return {
            "correct": Term(correct),
            "rationale": Term(lambda seen: self._matched(seen, "average_precision")),
            "consistency": Term(lambda seen: self._matched(seen, "recall")),
        }

    def equation(self, parts: Mapping[str, float]) -> float:
        """Return AP times the outcome (Eq. 4), or one of these factors."""
        if self.reward == "outcome":
            return parts["correct"]
        return parts["rationale"] * (parts["correct"] if self.reward == "hybrid" else 1.0)

    def scored(self, episode: Episode) -> Sequence[Scored | Unscored]:
        return [
            failed(one) or self._unlabelled(episode.task) or self._scored(episode.task, one)
            for one in episode.trajectories
        ]

    def matching(
        self, task: JudgeTask, trajectory: Trajectory, answers: Mapping[str, str]
    ) -> Matching | Unscored:
        """Match a trajectory's reasons with the task's checklist; without reasons the matching is empty."""
        checklist, reasons = _checklist(task), self._reasons(trajectory)
        if not checklist:
            return Unscored("the task has no checklist of human reasons")
        question = self._question(task, trajectory)
        if question is None:
            return Matching((), len(checklist), 0)
        if question.key not in answers:
            return Unscored("the MetaJudge gave no answer")
        read = read_matching(answers[question.key], humans=len(checklist), reasons=len(reasons))
        if isinstance(read, Malformed):
            return Unscored(f"the MetaJudge's answer cannot be read: {read.reason}")
        return read

    def _scored(self, task: JudgeTask, trajectory: Trajectory) -> Scored:
        right = self._right(task, trajectory.verdict)
        return Scored(task, trajectory, right, right)

    def _matched(self, seen: Scored, measure: str) -> float | Unscored:
        found = self.matching(seen.task, seen.trajectory, seen.answers)
        return found if isinstance(found, Unscored) else float(getattr(found, measure))

    def _unlabelled(self, task: JudgeTask) -> Unscored | None:
        """Return the reason if the task has no label; a known tie has none and can be scored."""
        if task.label is None and task.gold.get("strength") != 0:
            return Unscored("the task has no label")
        if self.exact and "strength" not in task.gold:
            return Unscored("the task's label has no strength: write it as A>>B or A>B")
        return None

    def _right(self, task: JudgeTask, verdict: Verdict | None) -> bool:
        if verdict is None or verdict.choice != task.label:
            return False
        return not self.exact or verdict.parsed["strength"] == task.gold.get("strength")

    def _question(self, task: JudgeTask, trajectory: Trajectory) -> Question | None:
        """Return the question on a trajectory; None if there is nothing to ask or no use for the answer."""
        checklist, reasons = _checklist(task), self._reasons(trajectory)
        if self.reward == "outcome" or self._unlabelled(task):
            return None
        return reasons_ask(checklist, reasons, trajectory.view.order)

    def _reasons(self, trajectory: Trajectory) -> list[str]:
        verdict = trajectory.verdict
        return [] if verdict is None else verdict.parsed["reasons"][: self.top]


def reasons_ask(checklist: Sequence[str], reasons: Sequence[str], order: Sequence[int]) -> Question | None:
    """Ask how well a judge's reasons, on responses in this order, express the human reasons.

    None if the judge or the humans gave no reasons.
    """
    if not checklist or not reasons:
        return None
    shown = {str(index + 1): letter(place) for place, index in enumerate(order)}
    renamed = [_NAMED.sub(lambda name: f"Response {shown[name[1]]}", point) for point in checklist]
    return matching_ask(renamed, reasons)


def _checklist(task: JudgeTask) -> tuple[str, ...]:
    return tuple(task.gold.get("checklist", ()))
