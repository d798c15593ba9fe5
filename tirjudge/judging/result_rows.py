"""The rows of a result file: written from judgments, and read back to be shown or reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError

from tirjudge.judging.judgment import Judgment
from tirjudge.judging.views import Confidence
from tirjudge.storage.records import failed, passages, reward_record, verdict_record
from tirjudge.storage.run_folder import read_lines
from tirjudge_environments import Criterion, JudgeTask, Message, Refused, Score, Trajectory
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import LARGEST_WEIGHT
from tirjudge_environments.templates import conversation_text

_PROMPT, _REFERENCE = "prompt", "reference"
"""In a program's variables, the text of the row's prompt and its reference answer."""


def result_row(result: Judgment, *, texts: bool = True, rewards: Sequence[Score] = ()) -> dict[str, Any]:
    """Return a judgment's line of a result file (see `docs/judge.md`), without the fields that a run adds.

    `texts` includes the prompt and the responses as they were judged. `rewards`, if given, has one score per
    trajectory.
    """
    task = result.episode.task
    calls = [call for trajectory in result.trajectories for call in trajectory.calls]
    refused = sum(isinstance(call.outcome, Refused) for call in calls)
    views = [_view(trajectory, task, texts=texts) for trajectory in result.trajectories]
    for view, reward in zip(views, rewards, strict=False):
        view["reward"] = reward_record(reward)
    return {
        "id": task.id,
        "format": result.kind,
        "verdict": result.verdict,
        "choice": result.choice,
        "scores": [result.scores.get(index) for index in range(len(task.candidates))]
        if result.scores
        else None,
        "label": task.label,
        "strength": task.gold.get("strength"),
        **({"checklist": list(task.gold["checklist"])} if "checklist" in task.gold else {}),
        "correct": result.credit,
        "stop": result.stop.value,
        "detail": result.detail,
        "domain": task.domain,
        "tags": list(task.tags),
        **({"prompt": list(map(asdict, task.prompt)), "responses": list(task.candidates)} if texts else {}),
        **({"reference": task.reference} if texts and task.reference else {}),
        **_criteria(result, texts=texts),
        **({} if result.confidence is None else {"confidence": result.confidence.model_dump(mode="json")}),
        "views": views,
        "programs": len(calls) - refused,
        "programs_failed": sum(map(failed, calls)),
        "programs_refused": refused,
        "prompt_tokens": result.usage.prompt_tokens,
        "completion_tokens": result.usage.completion_tokens,
    }


def _criteria(result: Judgment, *, texts: bool) -> dict[str, Any]:
    """Return the verdicts on the row's criteria; nothing for a row without any."""
    without = None if texts else {"text"}
    records = [one.model_dump(mode="json", exclude=without) for one in result.criteria]
    return {"criteria": records} if records else {}


def _view(trajectory: Trajectory, task: JudgeTask, *, texts: bool) -> dict[str, Any]:
    segments = passages(trajectory)
    programs = [passage for passage in segments if passage["kind"] == "program"]
    for program, call in zip(programs, trajectory.calls, strict=False):
        if not isinstance(call.outcome, Refused):
            program["bindings"] = _references(call.request.bindings, task, texts=texts)
    criterion = trajectory.view.criterion
    return {
        "view": trajectory.view.name,
        **({} if criterion is None else {"criterion": criterion}),
        "sample": trajectory.sample,
        "order": list(trajectory.view.order),
        "verdict": verdict_record(trajectory.verdict),
        "stop": trajectory.stop.value,
        "detail": trajectory.detail,
        "segments": segments,
        "prompt_tokens": trajectory.usage.prompt_tokens,
        "completion_tokens": trajectory.usage.completion_tokens,
        "seconds": round(trajectory.seconds, 3),
    }


def _references(bindings: Mapping[str, Any], task: JudgeTask, *, texts: bool) -> dict[str, Any] | None:
    """Return a program's variables, with references in place of the row's texts.

    A reference is `"prompt"`, `"reference"`, the index of a response, or a list of indices; any other value
    is `{"value": ...}`. None if there are such values and `texts` are left out.
    """
    prompt, index = conversation_text(task.prompt), {text: n for n, text in enumerate(task.candidates)}
    references: dict[str, Any] = {}
    for name, value in bindings.items():
        if isinstance(value, str) and value in index:
            references[name] = index[value]
        elif value == prompt:
            references[name] = _PROMPT
        elif task.reference and value == task.reference:
            references[name] = _REFERENCE
        elif isinstance(value, list) and all(isinstance(one, str) and one in index for one in value):
            references[name] = [index[one] for one in value]
        elif texts:
            references[name] = {"value": value}
        else:
            return None
    return references


Text = InstanceOf[str]
"""A text, which may have lone surrogates, unlike pydantic's own."""
Index = Annotated[int, Field(ge=0, lt=2**31)]


class _Recorded(BaseModel):
    """A part of a row. Fields that only other programs need are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class RecordedMessage(_Recorded):
    """One chat message of the row's prompt."""

    role: Literal["system", "user", "assistant"]
    content: Text


class RecordedPassage(_Recorded):
    """A part of a dialogue; see `tirjudge.storage.records.passages`."""

    kind: Literal["reasoning", "program", "output"]
    text: Text
    hidden: bool = False
    status: Text = ""
    """The end of a program, or `refused`."""
    reason: Text = ""
    """The reason why a program was refused."""
    exit_code: int | None = None
    signal: int | None = None
    stdout: Text = ""
    stderr: Text = ""
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """None for a program that did not run."""
    bindings: dict[Text, Any] | None = None
    """References to the row's texts, which `RecordedRow.variables` resolves; None where `--no-texts` left out
    a value."""


class RecordedVerdict(_Recorded):
    """The verdict of a view, in the row's order of the responses."""

    choice: Index | None
    tie: bool
    scores: dict[Text, float]

    @property
    def best(self) -> frozenset[str]:
        """The indices, as text, of the responses in first place; empty for a tie."""
        if self.choice is not None or self.tie:
            return frozenset() if self.tie else frozenset([str(self.choice)])
        top = max(self.scores.values(), default=0.0)
        return frozenset(index for index, score in self.scores.items() if score == top)


class RecordedCriterion(_Recorded):
    """The verdict on one criterion of a row."""

    text: Text = ""
    """Empty in rows written with `--no-texts`."""
    weight: Annotated[float, Field(ge=0, le=LARGEST_WEIGHT)]
    polarity: Literal["positive", "negative"]
    must_have: bool
    satisfied: list[Annotated[float, Field(ge=0, le=1)] | None]
    """For each response 1 or 0, a share of a tie, or None without a verdict."""
    scores: list[float | None] | None
    satisfied_from: Annotated[float, Field(allow_inf_nan=False)] | None
    """The lowest score that satisfies; None where the responses were compared."""
    stop: Text
    detail: Text = ""

    @property
    def criterion(self) -> Criterion:
        """The criterion, as tasks have it."""
        return Criterion(text=self.text, weight=self.weight, polarity=self.polarity, must_have=self.must_have)


class RecordedReward(_Recorded):
    """The reward of a view, or the reason why there is none."""

    total: float | None
    parts: dict[Text, float | None] = Field(default_factory=dict)
    unscored: Text = ""


class LastTurn(NamedTuple):
    """The end of a dialogue."""

    text: str
    hidden: str
    """Hidden thinking."""


class RecordedView(_Recorded):
    """One dialogue."""

    view: Text
    sample: Index = 0
    criterion: Index | None = None
    """The criterion that the dialogue was about; None in rows without criteria."""
    order: list[Index]
    """The candidate at each shown position."""
    verdict: RecordedVerdict | None
    stop: Text
    detail: Text = ""
    segments: list[RecordedPassage]
    reward: RecordedReward | None = None

    @property
    def last_turn(self) -> LastTurn:
        """The judge's words after its last program."""
        text = hidden = ""
        for passage in self.segments:
            if passage.kind != "reasoning":
                text = hidden = ""
            elif passage.hidden:
                hidden += passage.text
            else:
                text += passage.text
        return LastTurn(text, hidden)


class RecordedConfidence(_Recorded):
    """The confidence by which a verdict was kept or left open."""

    name: Confidence
    value: float | None
    below: float
    """Verdicts with a lower confidence were left open."""
    verdict: Text | None
    """The verdict, also if it was left open."""


class RecordedRow(_Recorded):
    """A row of a result file."""

    id: Text
    format: Text = ""
    verdict: Text | None
    scores: list[float | None] | None = None
    label: Index | None = None
    correct: float | None = None
    stop: Text
    detail: Text = ""
    domain: Text = ""
    tags: list[Text] = Field(default_factory=list)
    views: list[RecordedView]
    confidence: RecordedConfidence | None = None
    """None if the run left no verdicts open."""
    programs_failed: Index = 0
    model: Text = ""
    where: Text = ""
    cut: bool = False
    prompt: list[RecordedMessage] | None = None
    """None, like `responses`, in rows that were written with `--no-texts`."""
    responses: list[Text] | None = None
    reference: Text = ""
    criteria: list[RecordedCriterion] = Field(default_factory=list)

    @property
    def candidates(self) -> int:
        """Number of responses, also where their texts are not in the file."""
        return 1 + max((index for view in self.views for index in view.order), default=0)

    @property
    def flipped(self) -> bool:
        """True if two orders of the same responses and sample have verdicts for different responses.

        With criteria, orders are compared within each of them.
        """
        chosen: dict[tuple[int | None, int, tuple[int, ...]], set[frozenset[str]]] = {}
        for view in self.views:
            if view.verdict is not None and len(view.order) > 1:
                place = view.criterion, view.sample, tuple(sorted(view.order))
                chosen.setdefault(place, set()).add(view.verdict.best)
        return any(len(verdicts) > 1 for verdicts in chosen.values())

    def variables(self, program: RecordedPassage) -> dict[str, Any]:
        """Return the variables of a program. Raises ValueError if the row does not have all of them."""
        if program.bindings is None:
            raise ValueError("its variables are not in the file")
        return {name: self._value(reference) for name, reference in program.bindings.items()}

    def _value(self, reference: Any) -> Any:
        if isinstance(reference, Mapping) and "value" in reference:
            return reference["value"]
        if self.prompt is None or self.responses is None:
            raise ValueError("the prompt and the responses are not in the file")
        if reference == _REFERENCE:
            if not self.reference:
                raise ValueError("the reference is not in the file")
            return self.reference
        if reference == _PROMPT:
            return conversation_text([Message(one.role, one.content) for one in self.prompt])
        if isinstance(reference, list):
            return [self._response(one, self.responses) for one in reference]
        return self._response(reference, self.responses)

    @staticmethod
    def _response(index: Any, responses: Sequence[str]) -> str:
        if not isinstance(index, int) or not 0 <= index < len(responses):
            raise ValueError("one of its variables refers to a response that the row does not have")
        return responses[index]


def read_result_row(fields: Mapping[str, Any], where: str) -> RecordedRow:
    """Return a row of a result file; raises ValueError, in one line that begins with `where`."""
    try:
        return RecordedRow.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"{where}: not a row of a result file ({first_fault(error)})") from None


def read_result_rows(path: Path) -> Iterator[tuple[RecordedRow, Mapping[str, Any]]]:
    """Yield the complete rows of a result file, each with its fields as they are in the file.

    Raises OSError for a missing file, and ValueError, with file and line, for one that is no result file.
    """
    path.stat()
    for number, fields in enumerate(read_lines(path), 1):
        yield read_result_row(fields, f"{path}:{number}"), fields


def is_truncated(path: Path) -> bool:
    """Return True if a file does not end with a line break: its last row was not written completely."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")
