"""The views of a judgment as people read them: what the judge wrote and ran, and whom its letters name.

A judge may see the responses in another order than the row has them, and its reasoning and programs use the
letters of the order that it saw. Its text is shown as it was written: a letter inside a program, an output or
a quotation cannot be replaced safely. Instead every view says which response each letter means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tirjudge.judging.criteria import CriterionVerdict
from tirjudge.storage.records import passages
from tirjudge_environments import Refused, Trajectory
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.programs.outputs import cut_middle, output_text
from tirjudge_sandbox import Status

Confidence = Literal["vote-share", "margin", "separated"]
"""Names of the confidences in `tirjudge.judging.confidence`."""
_LONGEST_OUTPUT = 2000
"""Characters of an output in a `JudgedProgram`; longer ones are cut in the middle."""
_LONGEST_REASONING = 4000
"""Characters of the reasoning in a `JudgedView`; longer ones are cut in the middle."""


class JudgedProgram(BaseModel):
    """A program that the judge ran, and the output that it was shown."""

    model_config = ConfigDict(frozen=True)

    source: str
    output: str
    order: tuple[int, ...]
    """Index of the response at each shown position: with [1, 0] `response_a` is the row's second response."""
    letters: Mapping[str, int]
    """Letter in the program and its output to the index of the response; empty if one is shown alone."""
    criterion: int | None = None
    """Index of the criterion that the program was written for; None without criteria."""


class JudgedView(BaseModel):
    """One dialogue of a judgment: the order that the judge saw, its verdict and its reasoning."""

    model_config = ConfigDict(frozen=True)

    view: str
    """The order in the row's letters, such as `BA`; the index of a response that was judged alone."""
    sample: int
    """Number of the sample, from 0."""
    order: tuple[int, ...]
    """Index of the response at each shown position."""
    letters: Mapping[str, int]
    """Letter in this dialogue to the index of the response; empty if one is shown alone."""
    verdict: str | None
    """The view's verdict in the letters of the row (the first response is A), `tie`, or None."""
    verdict_as_shown: str | None
    """The same verdict in the letters of this dialogue (the response shown first is A)."""
    scores: Mapping[int, float]
    """Index of a response to its score, if this view scored it."""
    stop: str
    """`verdict`, or the reason why there is none."""
    detail: str
    reasoning: str
    """The judge's text without its programs and its hidden thinking; a long one is cut in the middle."""
    criterion: int | None = None
    """Index of the criterion that the dialogue was about; None without criteria."""


class JudgedCriterion(BaseModel):
    """The verdict on one criterion of a row."""

    model_config = ConfigDict(frozen=True)

    text: str
    weight: float
    polarity: Literal["positive", "negative"]
    must_have: bool
    satisfied: tuple[float | None, ...]
    """For each response 1 or 0, a share from 0 to 1 of a tie, or None without a verdict. A negative criterion
    is satisfied by a response that does not fulfil it."""
    scores: tuple[float | None, ...] | None
    """For each response its score in the format's range; None if the judge gave none."""
    satisfied_from: float | None
    """The lowest score that satisfies; None where the responses were compared."""
    stop: str
    """`verdict`, or why a response has none."""
    detail: str


class JudgedConfidence(BaseModel):
    """The confidence by which a verdict was kept or left open."""

    model_config = ConfigDict(frozen=True)

    name: Confidence
    value: float | None
    """None if the judgment does not have this confidence, such as a margin without scores."""
    below: float
    """Verdicts with a lower confidence are left open."""
    verdict: str | None
    """The verdict, also if it was left open."""


def judged_criteria(verdicts: Sequence[CriterionVerdict]) -> tuple[JudgedCriterion, ...]:
    """Return the verdicts on a row's criteria, in order."""
    return tuple(
        JudgedCriterion(
            text=encodable(one.criterion.text),
            weight=one.criterion.weight,
            polarity=one.criterion.polarity,
            must_have=one.criterion.must_have,
            satisfied=one.satisfied,
            scores=tuple(map(one.scores.get, range(len(one.satisfied)))) if one.scores else None,
            satisfied_from=one.satisfied_from,
            stop=one.stop.value,
            detail=one.detail,
        )
        for one in verdicts
    )


def judged_programs(trajectories: Sequence[Trajectory]) -> tuple[JudgedProgram, ...]:
    """Return the programs of all trajectories, in order."""
    return tuple(
        JudgedProgram(
            source=encodable(call.request.source),
            output=_output(call.outcome),
            order=one.view.order,
            letters=letters_of(one.view.order),
            criterion=one.view.criterion,
        )
        for one in trajectories
        for call in one.calls
    )


def judged_views(trajectories: Sequence[Trajectory]) -> tuple[JudgedView, ...]:
    """Return all trajectories as views, in order."""
    return tuple(map(_view, trajectories))


def letters_of(order: Sequence[int]) -> dict[str, int]:
    """Return the letters of a dialogue with the index of the response that each one means.

    `order` has the index of the response at each shown position. A response shown alone has no letter.
    """
    return dict(zip(letters(len(order)), order, strict=True)) if len(order) > 1 else {}


def _view(trajectory: Trajectory) -> JudgedView:
    verdict, order = trajectory.verdict, trajectory.view.order
    choice = verdict.choice if verdict is not None and len(order) > 1 else None
    tied = "tie" if verdict is not None and verdict.tie else None
    parts = [part["text"] for part in passages(trajectory) if _is_read(part)]
    return JudgedView(
        view=trajectory.view.name,
        sample=trajectory.sample,
        order=order,
        letters=letters_of(order),
        verdict=tied if choice is None else letter(choice),
        verdict_as_shown=tied if choice is None else letter(order.index(choice)),
        scores=dict(verdict.scores) if verdict is not None else {},
        stop=trajectory.stop.value,
        detail=trajectory.detail,
        reasoning=encodable(cut_middle("\n\n".join(text.strip() for text in parts), _LONGEST_REASONING)),
        criterion=trajectory.view.criterion,
    )


def _is_read(passage: Mapping[str, Any]) -> bool:
    return passage["kind"] == "reasoning" and not passage.get("hidden")


def _output(outcome: Any) -> str:
    # A failure of the sandbox was never shown to the judge.
    if not isinstance(outcome, Refused) and outcome.status is Status.SANDBOX_FAILED:
        return ""
    return encodable(output_text(outcome, _LONGEST_OUTPUT))


def encodable(text: str) -> str:
    """Escape lone surrogates: a model or a program may write them, and UTF-8 cannot represent them."""
    return text.encode(errors="backslashreplace").decode()
