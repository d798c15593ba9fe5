"""Judgments: a verdict with the dialogues that led to it, its row of a result file and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from tirjudge.records.answers import JudgeAnswer, JudgedProgram, JudgedView, judged_programs, judged_views
from tirjudge.records.html import row_html
from tirjudge.records.result_row import RecordedMessage, RecordedView, ResultRow, failed, file_records
from tirjudge.records.verdicts import (
    EMPTY,
    AuditedCriterion,
    JudgedConfidence,
    JudgedCriterion,
    JurorVerdict,
    rating_credit,
    verdict_credit,
)
from tirjudge_environments import Episode, Refused, Score, StopReason, Trajectory, Usage
from tirjudge_environments.messages import message_data, response_data, tool_data
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
    criteria: tuple[JudgedCriterion, ...] = ()
    """The verdict on each of the task's criteria, in order; `episode` and `further` have the dialogues."""
    confidence: JudgedConfidence | None = None
    """The confidence that kept the verdict or left it open; None for a judge that never abstains."""
    jury: tuple[JurorVerdict, ...] = ()
    """The verdict of each model that was asked; empty for a judge of one model."""
    earlier: Mapping[str, tuple[Trajectory, ...]] = field(default_factory=dict)
    """The dialogues of each model that was not sure enough, so that the next one was asked."""
    satisfied_from: float | None = None
    """The lowest score with which a single response passes; None for several responses."""
    decided: bool | None = None
    """True if a program decided each dialogue, sample, criterion and model that carries the verdict (see
    `tirjudge_environments.programs.evidence`), False if not, and None if that is not known."""
    evidence: bool = False
    """True if the evidence of the dialogues is recorded, also where it cannot say what decided."""
    audit: tuple[AuditedCriterion, ...] = ()
    """The model's verdicts on criteria that checkers decided; empty for a task that is not audited."""
    audit_usage: Usage = field(default_factory=Usage)
    """The tokens of the audit."""
    guess: tuple[int, ...] = ()
    """The judge's own verdict, as `best`, in place of which the judgment is a tie because no program decided
    it; empty for any other judgment."""

    @property
    def choice(self) -> int | None:
        """Index of the best candidate; None for a tie or without a verdict."""
        return self.best[0] if len(self.best) == 1 else None

    @property
    def verdict(self) -> str | None:
        """The best candidate's letter (the first given is A), `tie`, or None."""
        return verdict_name(self.best)

    @property
    def score(self) -> float | None:
        """The score of a single response; None for several."""
        return self.scores.get(0) if len(self.episode.task.candidates) == 1 else None

    @property
    def ranking(self) -> tuple[int, ...]:
        """Candidates, best first: all that have scores, or else only the chosen one.

        Equal scores keep the order given. Empty for a verdict that was left open, and for a tie in place of a
        guess.
        """
        if self.is_open or self.guess:
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
        """Every dialogue with order, verdict and reasoning, and the response behind each letter."""
        return judged_views(self.trajectories)

    @property
    def programs(self) -> tuple[JudgedProgram, ...]:
        """The programs of all views with outputs, and the response behind each letter."""
        return judged_programs(self.trajectories)

    @property
    def usage(self) -> Usage:
        """The tokens of all dialogues, also of the models of a jury whose verdict did not decide."""
        earlier = (Usage(one.prompt_tokens, one.completion_tokens) for one in self.jury if not one.samples)
        asked = (trajectory.usage for trajectory in self.trajectories)
        return sum((*earlier, *asked, self.audit_usage), Usage())

    @property
    def credit(self) -> float | None:
        """The `verdict_credit` by the label, or the `rating_credit` of a single response.

        None without a label, and for a verdict that was left open.
        """
        label = self.episode.task.label
        if self.is_open:
            return None
        if len(self.episode.task.candidates) == 1:
            return rating_credit(self.episode.task.gold.get("rating"), self.score, self.satisfied_from)
        if label is None:
            return None
        return verdict_credit(self.best, label)

    def tied_without_evidence(self) -> Judgment:
        """Return the judgment as a tie if it compares responses and no program decided it."""
        count = len(self.episode.task.candidates)
        if self.decided is not False or count < 2 or not self.best:
            return self
        compared = {index for one in spoken(self.trajectories) for index in one.view.order}
        return replace(self, best=tuple(sorted(compared)), guess=self.best)

    def answer(self) -> JudgeAnswer:
        """Return the judgment as people, agents and servers get it."""
        return JudgeAnswer(
            id=self.episode.task.id,
            format=self.kind,
            verdict=self.verdict,
            choice=self.choice,
            scores=self.all_scores,
            stop=self.stop.value,
            detail=self.detail,
            decided=self.decided,
            guess=verdict_name(self.guess),
            criteria=list(self.criteria),
            jury=list(self.jury),
            programs=list(self.programs),
            views=list(self.views),
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the judgment as JSON values: the fields of `/v1/judge`, and the label and the credit."""
        held = {} if self.confidence is None else {"confidence": self.confidence.model_dump(mode="json")}
        judged = {"label": self.episode.task.label, "correct": self.credit, **held}
        return self.answer().model_dump(mode="json") | judged

    def row(self, *, texts: bool = True, rewards: Sequence[Score] = ()) -> ResultRow:
        """Return the judgment's row of a result file, without the fields that a run adds.

        `texts` includes the prompt and the responses as they were judged. `rewards`, if given, has one score
        per trajectory.
        """
        task, calls = self.episode.task, [call for one in self.trajectories for call in one.calls]
        refused = sum(isinstance(call.outcome, Refused) for call in calls)
        given: dict[str, Any] = {
            "checklist": list(task.gold.get("checklist", ())),
            "prompt": [RecordedMessage(**message_data(message)) for message in task.prompt] if texts else [],
            "responses": list(map(response_data, task.candidates)) if texts else [],
            "tools": list(map(tool_data, task.tools)) if texts else [],
            "files": list(map(file_records, task.files)) if texts else [],
            "prompt_files": file_records(task.prompt_files) if texts else {},
            "sources": list(task.sources) if len(task.sources) == len(task.candidates) else [],
            "reference": task.reference if texts else "",
            "criteria": [one if texts else one.without_text() for one in self.criteria],
            "audit": list(self.audit),
            "confidence": self.confidence,
            "jury": list(self.jury),
            "guess": verdict_name(self.guess),
        }
        if self.earlier:
            given["earlier"] = {
                model: [
                    RecordedView.of(one, task, texts=texts, evidence=self._has_evidence(one)) for one in asked
                ]
                for model, asked in self.earlier.items()
            }
        rating = task.gold.get("rating")
        rated: dict[str, Any] = {} if rating is None else {"rating": rating}
        if self.satisfied_from is not None:
            rated["satisfied_from"] = self.satisfied_from
        # False is a value, unlike the empty values that are left out.
        known: dict[str, Any] = {} if self.decided is None else {"decided": self.decided}
        return ResultRow(
            id=task.id,
            format=self.kind,
            verdict=self.verdict,
            choice=self.choice,
            scores=self.all_scores,
            label=task.label,
            strength=task.gold.get("strength"),
            correct=self.credit,
            stop=self.stop.value,
            detail=self.detail,
            domain=task.domain,
            tags=list(task.tags),
            **{name: value for name, value in given.items() if value},
            **rated,
            **known,
            views=[
                RecordedView.of(one, task, texts=texts, reward=reward, evidence=self._has_evidence(one))
                for one, reward in zip_longest(self.trajectories, rewards)
            ],
            programs=len(calls) - refused,
            programs_failed=sum(map(failed, calls)),
            programs_refused=refused,
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
        )

    def _has_evidence(self, dialogue: Trajectory) -> bool:
        """Return True if the record of a dialogue has its evidence; a checker needs none."""
        number = dialogue.view.criterion
        checked = number is not None and bool(self.criteria) and bool(self.criteria[number].checker)
        return self.evidence and not checked

    @property
    def all_scores(self) -> list[float | None] | None:
        """Scores of all responses, None for a missing score; None if all scores are missing."""
        count = len(self.episode.task.candidates)
        return [self.scores.get(index) for index in range(count)] if self.scores else None

    def __repr__(self) -> str:
        """Describe the judgment in one line, without its dialogue."""
        values: dict[str, Any] = {"verdict": self.verdict}
        if self.decided is not None:
            values["decided"] = self.decided
        if self.scores:
            values["scores"] = {index: round(score, 3) for index, score in self.scores.items()}
        if self.stop is not StopReason.VERDICT:
            values |= {"stop": self.stop.value, "detail": self.detail}
        values["programs"] = sum(len(one.calls) for one in self.trajectories)
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<Judgment {self.episode.task.id!r} {self.kind}: {shown}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the texts, and the dialogues with their programs."""
        return row_html(self.row())


def spoken(trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """Return dialogues without the record of the rule about empty answers; the record alone without any."""
    return tuple(one for one in trajectories if one.view.name != EMPTY) or tuple(trajectories)


def verdict_name(best: Sequence[int]) -> str | None:
    """Return the letter of the only response in first place, `tie` for several, and None for none."""
    if len(best) == 1:
        return letter(best[0])
    return "tie" if best else None
