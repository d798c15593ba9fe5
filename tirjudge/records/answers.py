"""Answers: a judged row as people, agents and servers get it, with the response that each letter means.

A judge may see the responses in another order than the row's, and the judge's reasoning and programs use the
letters of the seen order. The judge's text is shown unchanged: a letter in a program, an output or a
quotation cannot be replaced safely. Instead every view says which response each letter means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from tirjudge.records.html import reasoning_html
from tirjudge.records.result_row import Dialogue, passages
from tirjudge.records.text import view_heading
from tirjudge.records.verdicts import JudgedCriterion, JurorVerdict, encodable
from tirjudge_environments import Call, Refused, Trajectory
from tirjudge_environments.orders import letter, letters
from tirjudge_environments.programs.evidence import evidence_of
from tirjudge_environments.programs.outputs import output_text
from tirjudge_environments.quoting import cut_middle
from tirjudge_sandbox import Status

_LONGEST_OUTPUT = 2000
"""Characters of an output in a `JudgedProgram`; longer ones are cut in the middle."""
_LONGEST_REASONING = 4000
"""Characters of the reasoning in a `JudgedView`; longer ones are cut in the middle."""


class JudgedProgram(BaseModel):
    """A program that the judge ran, or a called tool, with the output shown to the judge."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    source: str
    """The program, or the arguments of the tool."""
    tool: str = ""
    """Name of the tool that was called; empty for a program."""
    output: str
    order: list[int]
    """Index of the response at each shown position: with [1, 0] `response_a` is the row's second response."""
    letters: Mapping[str, int]
    """Letter in the program and its output to the index of the response; empty if one is shown alone."""
    criterion: int | None = None
    """Index of the criterion that the program was written for; None without criteria."""


class JudgedView(Dialogue):
    """One dialogue of a judgment: order of responses, verdict and reasoning."""

    model_config = ConfigDict(strict=False, use_attribute_docstrings=True)

    verdict: str | None
    """The view's verdict in the letters of the row (the first response is A), `tie`, or None."""
    verdict_as_shown: str | None
    """The same verdict in the letters of this dialogue (the response shown first is A)."""
    letters: Mapping[str, int]
    """Letter in this dialogue to the index of the response; empty if one is shown alone."""
    scores: Mapping[int, float]
    """Index of a response to its score, if this view scored it."""
    evidence: str
    """The relation of its programs to the responses: a value of `tirjudge_environments.Evidence`."""
    reasoning: str
    """The judge's text without its programs and its hidden thinking; a long one is cut in the middle."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the order of the responses, the judge's words and the verdict."""
        verdict = self.verdict or self.detail or self.stop
        said = [f"verdict {verdict}", f"evidence: {self.evidence}" if self.evidence else ""]
        return reasoning_html(view_heading(self), self.reasoning, said)


class JudgeAnswer(BaseModel):
    """A verdict, or why there is none."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: str
    format: str
    """`pointwise`, `pairwise`, `listwise`, or the name of another format."""
    verdict: str | None
    """Letter of the best response (the first of the question is A), `tie`, or null."""
    choice: int | None
    """Index of the best response, from 0; null for a tie and without a verdict."""
    decided: bool | None = None
    """True if programs decided the verdict, false if it is a guess, null if that is not known."""
    guess: str | None = None
    """The judge's own verdict, where the row is a tie because no program decided it."""
    scores: list[float | None] | None
    """One score per response in the format's range, or with criteria its aggregate from 0 to 1; null if there
    are none."""
    stop: str
    """`verdict`, or the reason why there is none."""
    detail: str
    criteria: list[JudgedCriterion] = []
    """The verdict on every criterion of the question."""
    jury: list[JurorVerdict] = []
    """The verdict of each model that was asked; empty for a judge of one model."""
    programs: list[JudgedProgram]
    """The programs that the judge ran, each with the responses that its letters mean."""
    views: list[JudgedView]
    """The judge's dialogues, each with the order of responses, verdict and reasoning."""
    prompt_tokens: int
    completion_tokens: int


def judged_programs(trajectories: Sequence[Trajectory]) -> tuple[JudgedProgram, ...]:
    """Return the programs of all trajectories, in order."""
    return tuple(
        JudgedProgram(
            source=encodable(call.request.source),
            tool=encodable(call.request.tool),
            output=_output(call),
            order=list(one.view.order),
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
    read = [part for part in passages(trajectory) if part["kind"] == "reasoning" and not part.get("hidden")]
    reasoning = "\n\n".join(part["text"].strip() for part in read)
    return JudgedView(
        view=trajectory.view.name,
        criterion=trajectory.view.criterion,
        sample=trajectory.sample,
        order=list(order),
        verdict=tied if choice is None else letter(choice),
        verdict_as_shown=tied if choice is None else letter(order.index(choice)),
        letters=letters_of(order),
        scores=dict(verdict.scores) if verdict is not None else {},
        evidence=evidence_of(trajectory).value,
        stop=trajectory.stop.value,
        detail=trajectory.detail,
        reasoning=encodable(cut_middle(reasoning, _LONGEST_REASONING)),
    )


def _output(call: Call) -> str:
    outcome = call.outcome
    # A failure of the sandbox was never shown to the judge.
    if not isinstance(outcome, Refused) and outcome.status is Status.SANDBOX_FAILED:
        return ""
    return encodable(output_text(outcome, _LONGEST_OUTPUT, called=bool(call.request.tool)))
