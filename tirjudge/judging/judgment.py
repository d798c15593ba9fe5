"""Judgments: the verdicts of all views of a task combined, with the programs and the row of a result file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from tirjudge.judging.criteria import SATISFIED_FROM, Aggregate, CriterionVerdict, aggregate
from tirjudge.judging.views import (
    JudgedConfidence,
    JudgedCriterion,
    JudgedProgram,
    JudgedView,
    judged_criteria,
    judged_programs,
    judged_views,
)
from tirjudge_environments import Episode, JudgeTask, StopReason, Trajectory, Usage, Verdict, View
from tirjudge_environments.orders import letter


@dataclass(frozen=True, slots=True)
class Judgment:
    """A verdict, or the reason why there is none."""

    kind: str
    """TIR-Judge's `pointwise`, `pairwise` or `listwise`, or the name of another format."""
    best: tuple[int, ...]
    """Candidates that share the first place: one is a choice, several are a tie. Empty without a verdict,
    and for a single response, which is not compared with any other."""
    scores: Mapping[int, float]
    """Candidate index to score, the mean over the views that gave one; empty if none did. Of a task with
    criteria, the aggregate from 0 to 1."""
    stop: StopReason
    """VERDICT, or the stop of the first view without one; an unscored view comes before all others.
    ABSTAINED if the verdict was left open."""
    detail: str
    """The problem in one line, for a stop other than VERDICT."""
    episode: Episode
    further: tuple[Episode, ...] = ()
    """Further samples of the same task, the first of which is `episode`."""
    criterion_verdicts: tuple[CriterionVerdict, ...] = ()
    """One for each of the task's criteria, in order; their dialogues are those of `episode` and `further`."""
    confidence: JudgedConfidence | None = None
    """The confidence by which the verdict was kept or left open; None for a judge that leaves none open."""

    @property
    def choice(self) -> int | None:
        """Index of the best candidate; None for a tie or without a verdict."""
        return self.best[0] if len(self.best) == 1 else None

    @property
    def verdict(self) -> str | None:
        """The best candidate's letter (the first given is A), `tie`, or None."""
        if self.choice is not None:
            return letter(self.choice)
        return "tie" if self.best else None

    @property
    def score(self) -> float | None:
        """The score of a single response; None for several."""
        return self.scores.get(0) if len(self.episode.task.candidates) == 1 else None

    @property
    def ranking(self) -> tuple[int, ...]:
        """Candidates, best first: all that have scores, or else only the chosen one.

        Equal scores keep the order given. Empty for a verdict that was left open.
        """
        if self.is_open:
            return ()
        # Criteria without a verdict may leave the aggregate of a chosen response open.
        if self.scores and self.scores.keys() >= set(self.best):
            return tuple(sorted(self.scores, key=lambda index: -self.scores[index]))
        return self.best if len(self.best) == 1 else ()

    @property
    def is_open(self) -> bool:
        """True if the verdict was left open for its low confidence; `confidence.verdict` is that verdict."""
        return self.stop is StopReason.ABSTAINED

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """The trajectories of all samples."""
        return tuple(one for episode in (self.episode, *self.further) for one in episode.trajectories)

    @property
    def views(self) -> tuple[JudgedView, ...]:
        """Every dialogue with its order, its verdict and its reasoning, and whom its letters name."""
        return judged_views(self.trajectories)

    @property
    def programs(self) -> tuple[JudgedProgram, ...]:
        """The programs of all views with their outputs, and whom their letters name."""
        return judged_programs(self.trajectories)

    @property
    def criteria(self) -> tuple[JudgedCriterion, ...]:
        """The verdict on every criterion of the task."""
        return judged_criteria(self.criterion_verdicts)

    @property
    def usage(self) -> Usage:
        return sum((trajectory.usage for trajectory in self.trajectories), Usage())

    @property
    def credit(self) -> float | None:
        """1 for the labelled candidate, 1 / k for a tie of k with it, else 0.

        None without a label, and for a verdict that was left open.
        """
        label = self.episode.task.label
        if label is None or len(self.episode.task.candidates) < 2 or self.is_open:
            return None
        return 1 / len(self.best) if label in self.best else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the judgment as JSON values: the fields of `/v1/judge`, and the label and the credit."""
        task = self.episode.task
        scores = [self.scores.get(index) for index in range(len(task.candidates))]
        return {
            "id": task.id,
            "format": self.kind,
            "verdict": self.verdict,
            "choice": self.choice,
            "scores": scores if self.scores else None,
            "label": task.label,
            "correct": self.credit,
            "stop": self.stop.value,
            "detail": self.detail,
            **({} if self.confidence is None else {"confidence": self.confidence.model_dump(mode="json")}),
            "criteria": [criterion.model_dump(mode="json") for criterion in self.criteria],
            "programs": [program.model_dump(mode="json") for program in self.programs],
            "views": [view.model_dump(mode="json") for view in self.views],
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
        }

    def __repr__(self) -> str:
        """Describe the judgment in one line, without its dialogue."""
        values: dict[str, Any] = {"verdict": self.verdict}
        if self.scores:
            values["scores"] = {index: round(score, 3) for index, score in self.scores.items()}
        if self.stop is not StopReason.VERDICT:
            values |= {"stop": self.stop.value, "detail": self.detail}
        values["programs"] = sum(len(one.calls) for one in self.trajectories)
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<Judgment {self.episode.task.id!r} {self.kind}: {shown}>"


def judgment(kind: str, episode: Episode) -> Judgment:
    """Combine the views of an episode into one judgment.

    Views that name different candidates make a tie, and so do equal highest scores and a view that says so.
    One view without a verdict leaves the task without one; scores that other views gave are kept.
    """
    stop, detail = _worst([(one.stop, one.detail) for one in episode.trajectories])
    ended = [(one.verdict, one.view) for one in episode.trajectories if one.verdict is not None]
    scores = _mean_scores(_verdicts(episode))
    best: tuple[int, ...] = ()
    if stop is StopReason.VERDICT:
        # Two orders that disagree name two candidates, which is how position bias becomes a tie.
        named = {index for verdict, view in ended for index in _named(verdict, view)}
        best = tuple(sorted(named)) if named else highest(scores, 2)
    return Judgment(kind, best, scores, stop, detail, episode)


def consensus(samples: Sequence[Judgment]) -> Judgment:
    """Combine several samples of one task: SC@N, and mean-score@N for judges of single responses.

    The candidate that most samples choose is the best; equal counts are a tie, and a sample that is a tie or
    has no verdict does not vote. Where responses were judged alone, the highest mean score decides (J1,
    Section 4.2). Scores are means over all samples that gave one.
    """
    first = samples[0]
    scores = _mean_scores([verdict for sample in samples for verdict in _verdicts(sample.episode)])
    stop, detail = _worst([(sample.stop, sample.detail) for sample in samples])
    best: tuple[int, ...] = ()
    if not stop.unscored:
        seen = [sample for sample in samples if sample.stop is StopReason.VERDICT]
        stop, detail = (StopReason.VERDICT, "") if seen else (stop, detail)
        alone = all(len(one.view.order) == 1 for one in first.trajectories)
        best = highest(scores, 2) if alone else _most_chosen(seen) or next((one.best for one in seen), ())
    further = tuple(sample.episode for sample in samples[1:])
    return replace(first, best=best, scores=scores, stop=stop, detail=detail, further=further)


def by_criteria(
    task: JudgeTask, parts: Sequence[Judgment], satisfied_from: float = SATISFIED_FROM
) -> Judgment:
    """Combine the judgments on a task's criteria, one for each, into the judgment of the task.

    `satisfied_from` is the lowest score with which a response that was shown alone satisfies a criterion; of
    responses that were shown together, the better one does. See `aggregate` for the rule. A failure of the
    model or the sandbox on any criterion leaves the task without a verdict.
    """
    count = len(task.candidates)
    verdicts = tuple(
        _criterion_verdict(task, number, part, satisfied_from) for number, part in enumerate(parts)
    )
    unanswered = [
        (one.stop, f"criterion {number}: {one.detail}")
        for number, one in enumerate(verdicts, 1)
        if one.stop is not StopReason.VERDICT
    ]
    # A failure that a retry may mend comes first: another run completes the record.
    unanswered.sort(key=lambda pair: not pair[0].down)
    stop, detail = unanswered[0] if unanswered else (StopReason.VERDICT, "")
    found = Aggregate((), {}) if stop.down else aggregate(verdicts, count)
    if found.decided(count):
        stop, detail = StopReason.VERDICT, ""
    return Judgment(
        kind=parts[0].kind,
        best=found.best,
        scores=found.scores,
        stop=stop,
        detail=detail,
        episode=_joined(task, [part.episode for part in parts]),
        further=tuple(
            _joined(task, list(episodes)) for episodes in zip(*(part.further for part in parts), strict=True)
        ),
        criterion_verdicts=verdicts,
    )


def highest(scores: Mapping[int, float], least: int) -> tuple[int, ...]:
    """Return the candidates with the highest score, sorted; empty unless `least` candidates have one."""
    if not scores or len(scores) < least:
        return ()
    top = max(scores.values())
    return tuple(sorted(index for index, score in scores.items() if score == top))


def _criterion_verdict(
    task: JudgeTask, number: int, part: Judgment, satisfied_from: float
) -> CriterionVerdict:
    alone = all(len(one.view.order) == 1 for one in part.trajectories)
    return CriterionVerdict.of(
        task.criteria[number],
        len(task.candidates),
        best=part.best,
        scores=part.scores,
        satisfied_from=satisfied_from if alone else None,
        stop=part.stop,
        detail=part.detail,
    )


def _joined(task: JudgeTask, episodes: Sequence[Episode]) -> Episode:
    """Return the dialogues on all criteria of one sample, each with the criterion that it was about."""
    trajectories = tuple(
        replace(one, view=replace(one.view, criterion=number))
        for number, episode in enumerate(episodes)
        for one in episode.trajectories
    )
    return Episode(task, episodes[0].sample, trajectories)


def _worst(stops: Sequence[tuple[StopReason, str]]) -> tuple[StopReason, str]:
    """Return the first stop without a verdict, unscored ones before all others."""
    ended = [(stop, detail) for stop, detail in stops if stop is not StopReason.VERDICT]
    ended.sort(key=lambda pair: not pair[0].unscored)
    return ended[0] if ended else (StopReason.VERDICT, "")


def _verdicts(episode: Episode) -> list[Verdict]:
    return [one.verdict for one in episode.trajectories if one.verdict is not None]


def _most_chosen(samples: Sequence[Judgment]) -> tuple[int, ...]:
    votes = Counter(sample.choice for sample in samples if sample.choice is not None)
    return tuple(sorted(index for index, count in votes.items() if count == max(votes.values())))


def _named(verdict: Verdict, view: View) -> tuple[int, ...]:
    """Return the candidates that a view puts first; none if it only gives scores."""
    if verdict.tie:
        return view.order
    return () if verdict.choice is None else (verdict.choice,)


def _mean_scores(verdicts: Sequence[Verdict]) -> dict[int, float]:
    given: dict[int, list[float]] = {}
    for verdict in verdicts:
        for index, score in verdict.scores.items():
            given.setdefault(index, []).append(score)
    return {index: fmean(scores) for index, scores in given.items()}
