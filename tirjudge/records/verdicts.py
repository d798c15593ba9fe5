"""Verdicts in result files and answers: of a view, on a criterion, and of a model of a jury."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, InstanceOf

from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import Criterion, Score, Unscored, Verdict
from tirjudge_environments.tasks import LARGEST_WEIGHT

Confidence = Literal["vote-share", "margin", "evidence"]
"""Names of the confidences in `tirjudge.judging.abstention`."""
EMPTY = "empty"
"""Name of a view without a dialogue that records the rule about empty answers."""
Text = InstanceOf[str]
"""A text, which may have lone surrogates, unlike pydantic's own."""
Index = Annotated[int, Field(ge=0, lt=2**31)]
Number = int | float
Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class Recorded(BaseModel):
    """A part of a row. Fields of other programs are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class RecordedVerdict(Recorded):
    """The verdict of a view, in the row's order of the responses."""

    choice: Index | None
    tie: bool
    scores: dict[Text, Number]
    parsed: dict[Text, Any] = Field(default_factory=dict)

    @property
    def best(self) -> frozenset[str]:
        """The indices, as text, of the responses in first place; empty for a tie."""
        if self.choice is not None or self.tie:
            return frozenset() if self.tie else frozenset([str(self.choice)])
        top = max(self.scores.values(), default=0.0)
        return frozenset(index for index, score in self.scores.items() if score == top)


class JudgedCriterion(Recorded):
    """The verdict on one criterion of a row."""

    text: Text = ""
    """Empty in rows written with `--no-texts`."""
    weight: Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)]
    polarity: Literal["positive", "negative"]
    must_have: bool
    satisfied: list[Annotated[float, Field(ge=0, le=1)] | None]
    """For each response 1 or 0, a share from 0 to 1 of a tie, or None without a verdict. A negative criterion
    is satisfied by a response that does not fulfil it."""
    scores: list[float | None] | None
    """For each response its score in the format's range; None if the judge gave none."""
    satisfied_from: Annotated[float, Field(allow_inf_nan=False)] | None
    """The lowest score that satisfies; None where the responses were compared."""
    stop: Text
    """`verdict`, or why a response has none."""
    detail: Text = ""
    checker: Text = ""
    """Name of the checker that decided it; empty for a verdict of the judge's model."""
    decided: bool | None = None
    """True if programs decided the verdict of the judge's model, False for a guess, None if unknown."""

    @classmethod
    def of(
        cls,
        criterion: Criterion,
        count: int,
        *,
        best: Sequence[int],
        scores: Mapping[int, float],
        satisfied_from: float | None,
        stop: str,
        detail: str = "",
        checker: str = "",
        decided: bool | None = None,
    ) -> JudgedCriterion:
        """Return the verdict on `count` responses, of a model or of a `checker`.

        `satisfied_from` is the lowest satisfying score of a response shown alone; None for responses shown
        together, of which `best` satisfy. Without `best` there is no verdict.
        """
        satisfied: list[float | None] = [None] * count
        known: dict[str, Any] = {"checker": checker} if checker else {}
        known |= {} if decided is None else {"decided": decided}
        if satisfied_from is not None:
            found = map(scores.get, range(count))
            satisfied = [None if score is None else float(score >= satisfied_from) for score in found]
        elif best:
            satisfied = [1 / len(best) if index in best else 0.0 for index in range(count)]
        return cls(
            text=encodable(criterion.text),
            weight=criterion.weight,
            polarity=criterion.polarity,
            must_have=criterion.must_have,
            satisfied=satisfied,
            scores=list(map(scores.get, range(count))) if scores else None,
            satisfied_from=satisfied_from,
            stop=str(stop),
            detail=detail,
            **known,
        )

    def without_text(self) -> JudgedCriterion:
        """Return the verdict without the text, as `--no-texts` records it."""
        return JudgedCriterion(**self.model_dump(exclude={"text"}, exclude_unset=True))

    @property
    def criterion(self) -> Criterion:
        """The criterion, as tasks have it."""
        return Criterion(text=self.text, weight=self.weight, polarity=self.polarity, must_have=self.must_have)


class AuditedCriterion(Recorded):
    """The verdict of the judge's model on a criterion that a checker decided, and whether both agree."""

    criterion: Index
    """Index of the criterion in the row."""
    agrees: bool | None
    """None if the model gave no verdict or guessed, or compared responses that all pass or all fail."""
    satisfied: list[Annotated[float, Field(ge=0, le=1)] | None]
    """For each response as in `JudgedCriterion`, by the model."""
    stop: Text
    """`verdict`, or why a response has none."""
    detail: Text = ""


class JurorVerdict(Recorded):
    """The verdict of one model of a jury."""

    model: Text
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight of its vote."""
    verdict: Text | None
    """The letter of the best response, `tie`, or None."""
    decided: bool | None = None
    guess: Text = ""
    """As in `ResultRow`, of this model alone."""
    scores: list[float | None] | None = None
    """For each response its mean score; None if the model gave none."""
    correct: float | None = None
    """The credit by the label; None without a label."""
    stop: Text
    """`verdict`, or why there is none."""
    confidence: float | None = None
    """The confidence that decided whether the next model was asked; None if no model was next."""
    samples: list[Index]
    """Numbers of the samples in the row's views that this model gave; empty if the next model was asked, so
    that its views are among the `earlier` ones."""
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class JudgedConfidence(Recorded):
    """The confidence by which a verdict was kept or left open."""

    name: Confidence
    value: float | None
    """None if the judgment does not have this confidence, such as a margin without scores."""
    below: float
    """Verdicts with a lower confidence are left open."""
    verdict: Text | None
    """The verdict, also if it was left open."""


class RecordedReward(Recorded):
    """The reward of a view, or the reason why there is none."""

    total: Number | None
    unscored: Text = ""
    parts: dict[Text, Number | None] = Field(default_factory=dict)


def verdict_credit(best: Sequence[int], label: int) -> float:
    """Return 1 for the label alone, 1 / k for a tie of k with it, and 0 for another or no verdict.

    `best` holds the candidates that share the first place. The mean over labelled rows is the accuracy that
    every command prints, under the name of the protocol `verdict`.
    """
    return 1 / len(best) if label in best else 0.0


def rating_credit(
    rating: bool | float | None, score: float | None, satisfied_from: float | None
) -> float | None:
    """Return 1 if a single response passes exactly where people say so, and 0 otherwise or without a score.

    A response passes from the score `satisfied_from`. None for a rating that is neither pass nor fail.
    """
    if not isinstance(rating, bool) or satisfied_from is None:
        return None
    return float(score is not None and (score >= satisfied_from) == rating)


def verdict_record(verdict: Verdict) -> JsonObject:
    """Return the record of a verdict; `parsed` is left out if it is empty."""
    return {
        "choice": verdict.choice,
        "tie": verdict.tie,
        "scores": {str(candidate): score for candidate, score in verdict.scores.items()},
        **({"parsed": dict(verdict.parsed)} if verdict.parsed else {}),
    }


def reward_record(score: Score) -> JsonObject:
    """Return the record of a reward, or the reason why there is none."""
    if isinstance(score, Unscored):
        return {"total": None, "unscored": score.reason}
    return {"total": score.total, "parts": dict(score.parts)}


def encodable(text: str) -> str:
    """Escape lone surrogates: a model or a program may write them, and UTF-8 cannot represent them."""
    return text.encode(errors="backslashreplace").decode()
