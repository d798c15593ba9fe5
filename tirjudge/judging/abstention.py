"""Confidence of a verdict, from votes, scores or evidence: rows with a low confidence stay open.

A confidence ranks rows by trust in the verdict; `tirjudge score --calibrate` measures how well. No confidence
asks the model how sure the model is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tirjudge.judging.checked import checked_of
from tirjudge.judging.combining import by_criteria, by_views, common_threshold
from tirjudge.judging.judgment import Judgment, spoken
from tirjudge.records.verdicts import Confidence, JudgedConfidence
from tirjudge_environments import Episode, StopReason, Trajectory

ABOUT: Mapping[Confidence, str] = {
    "vote-share": "share of the votes of all samples and orders that are for the verdict",
    "margin": "best mean score minus the second best",
    "evidence": "1 for a verdict that programs decided, 0 for a guess",
}

Votes = Sequence[Sequence[int]]
"""The candidates in first place of each vote: one is a choice, several are a tie, none is no verdict."""


@dataclass(frozen=True, slots=True)
class Abstention:
    """The rule by which verdicts are left open, or the next model of a jury is asked."""

    below: float
    """The rule applies to verdicts with a lower confidence, and to those without one."""
    confidence: Confidence = "vote-share"

    def apply(self, judged: Judgment) -> Judgment:
        """Return a judgment with its confidence, and without its verdict if that is left open.

        The views keep their verdicts, and `confidence.verdict` is the withheld verdict. A judgment of a
        single response, or without a verdict, gains the confidence and is not changed otherwise.
        """
        value = self.value(judged)
        held = JudgedConfidence(name=self.confidence, value=value, below=self.below, verdict=judged.verdict)
        if not judged.best or self.is_reached(value):
            return replace(judged, confidence=held)
        reason = f"there is no {self.confidence}" if value is None else f"{self.confidence} {value:.3g}"
        detail = f"left open: {reason}{'' if value is None else f' is below {self.below:g}'}"
        return replace(judged, best=(), stop=StopReason.ABSTAINED, detail=detail, confidence=held)

    def value(self, judged: Judgment) -> float | None:
        """Return the confidence of a judgment; None without a verdict or without this kind of confidence."""
        return confidence_of(judged, self.confidence) if judged.best or judged.scores else None

    def is_reached(self, value: float | None) -> bool:
        """Return whether a confidence is high enough."""
        return value is not None and value >= self.below


def confidence_of(judged: Judgment, name: Confidence) -> float | None:
    """Return a confidence that follows from verdicts and programs; None if the judgment has none."""
    if name == "evidence":
        return None if judged.decided is None else float(judged.decided)
    opinions = _opinions(judged)
    if name == "vote-share":
        return vote_share([one.best for one in opinions], judged.best)
    return margin([one.scores for one in opinions])


def vote_share(votes: Votes, best: Sequence[int]) -> float | None:
    """Return the share of votes, from 0 to 1, for the candidates `best`; None without a verdict.

    A vote for a tie of k counts 1 / k for each candidate; an empty vote counts 0. If `best` is a tie, only
    votes for a tie count: orders that name different candidates make a tie without votes.
    """
    if not votes or not best:
        return None
    if len(best) > 1:
        return fmean(len(vote) > 1 for vote in votes)
    return fmean(1 / len(vote) if best[0] in vote else 0.0 for vote in votes)


def margin(scores: Sequence[Mapping[int, float]]) -> float | None:
    """Return the best mean score minus the second best; None unless two candidates have scores.

    `scores` has one mapping of candidate to score for each vote; the unit is that of the scores.
    """
    candidates = {index for one in scores for index in one}
    means = sorted(fmean(one[index] for one in scores if index in one) for index in candidates)
    return means[-1] - means[-2] if len(means) > 1 else None


def _opinions(judged: Judgment) -> list[Judgment]:
    """Return one judgment for each dialogue, or for each sample if the responses were judged alone.

    With criteria, corresponding judgments on all criteria are aggregated into one.
    """
    if not judged.criteria:
        return _of_dialogues(judged, judged.trajectories)
    checked = checked_of(judged.criteria, judged.trajectories)
    if len(checked) == len(judged.criteria):
        return [judged]
    asked = [number for number in range(len(judged.criteria)) if number not in checked]
    parts = [
        _of_dialogues(judged, [one for one in judged.trajectories if one.view.criterion == number])
        for number in asked
    ]
    threshold = common_threshold(judged.criteria[number].satisfied_from for number in asked)
    return [
        by_criteria(judged.episode.task, part, threshold, checked=checked)
        for part in zip(*parts, strict=False)
    ]


def _of_dialogues(judged: Judgment, trajectories: Sequence[Trajectory]) -> list[Judgment]:
    trajectories = spoken(trajectories)
    groups = [[one] for one in trajectories]
    if all(len(one.view.order) == 1 for one in trajectories):
        samples = sorted({one.sample for one in trajectories})
        groups = [[one for one in trajectories if one.sample == sample] for sample in samples]
    task = judged.episode.task
    return [by_views(judged.kind, Episode(task, group[0].sample, tuple(group))) for group in groups]
