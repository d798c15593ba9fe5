"""Judged rows: the rows of a result file, written from trajectories and read back to be shown or reproduced.

Fields that are not set are left out of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, TypeAdapter, ValidationError

from tirjudge.storage.run_folder import JsonObject, read_lines
from tirjudge_environments import (
    By,
    Call,
    Criterion,
    JudgeTask,
    Message,
    Refused,
    Response,
    Score,
    Segment,
    ToolCall,
    Trajectory,
    Unscored,
    Verdict,
)
from tirjudge_environments.messages import conversation_data, response_data, tool_data
from tirjudge_environments.parsing import Turn
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import LARGEST_WEIGHT
from tirjudge_sandbox import Execution, Status

Confidence = Literal["vote-share", "margin"]
"""Names of the confidences in `tirjudge.judging.abstention`."""
Text = InstanceOf[str]
"""A text, which may have lone surrogates, unlike pydantic's own."""
Index = Annotated[int, Field(ge=0, lt=2**31)]
Number = int | float
Count = Annotated[int, Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Field(ge=0, lt=1e9)]

_PROMPT, _REFERENCE, _TOOLS = "prompt", "reference", "tools"
"""In a program's variables, the row's prompt, its reference answer and its tools."""
_EXECUTION = TypeAdapter(Execution)
_OUTCOME = {"status", "exit_code", "signal", "stdout", "stderr", "truncated", "wall_seconds", "cpu_seconds"}
"""Fields of an execution that a record has, in the order of `Execution`."""
_CUT = {"kept_bytes", "cut_bytes"}
"""Further fields of an execution whose output was cut."""


class _Recorded(BaseModel):
    """A part of a row. Fields of other programs are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, use_attribute_docstrings=True)


class RecordedFunction(_Recorded):
    """The name and the arguments of a call."""

    name: Text
    arguments: Text


class RecordedCall(_Recorded):
    """A call of a tool, in OpenAI's form."""

    id: Text
    type: Literal["function"] = "function"
    function: RecordedFunction


class RecordedMessage(_Recorded):
    """One chat message of the row's prompt or of a transcript, in OpenAI's form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text
    tool_calls: list[RecordedCall] = Field(default_factory=list)
    tool_call_id: Text = ""
    name: Text = ""

    @property
    def message(self) -> Message:
        """The message, as tasks have it."""
        calls = (ToolCall(one.id, one.function.name, one.function.arguments) for one in self.tool_calls)
        return Message(self.role, self.content, tuple(calls), self.tool_call_id, self.name)


class RecordedTool(_Recorded):
    """A tool that was offered for the responses, in OpenAI's form."""

    type: Literal["function"] = "function"
    function: dict[Text, Any]


class RecordedPassage(_Recorded):
    """A part of a dialogue. All passages of a dialogue contain the whole of it except for fence lines."""

    kind: Literal["reasoning", "program", "output"]
    """`reasoning` is what the model wrote, `program` what it asked to run, or the arguments of a tool that it
    called, with the whole outcome, and `output` the part of the outcome that it was shown."""
    text: Text
    hidden: bool = False
    """True for thinking that the endpoint returned separately."""
    tool: Text = ""
    """The name of the tool that was called; empty for a program."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    """None for a program that did not run."""
    status: Text = ""
    """The end of a program, or `refused`."""
    reason: Text = ""
    """The reason why a program was refused."""
    exit_code: int | None = None
    signal: int | None = None
    stdout: Text = ""
    stderr: Text = ""
    truncated: bool = False
    kept_bytes: int = 0
    cut_bytes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    placement: Text | None = None
    isolation_missing: list[Text] = Field(default_factory=list)
    detail: Text = ""
    exchanged: dict[Text, Any] | None = None
    """The outcome with the responses exchanged, see `Call.exchanged`; None if it was not run again."""
    bindings: dict[Text, Any] | None = None
    """References to the row's texts, which `RecordedRow.variables` resolves; None where `--no-texts` left out
    a value."""


class RecordedVerdict(_Recorded):
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


class JudgedCriterion(_Recorded):
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
    ) -> JudgedCriterion:
        """Return the verdict on `count` responses.

        `satisfied_from` is the lowest score that satisfies, of responses that were shown alone; None for
        responses that were shown together, of which `best` satisfy. Without `best` there is no verdict.
        """
        satisfied: list[float | None] = [None] * count
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
        )

    def without_text(self) -> JudgedCriterion:
        """Return the verdict without the text, as `--no-texts` records it."""
        return JudgedCriterion(**self.model_dump(exclude={"text"}))

    @property
    def criterion(self) -> Criterion:
        """The criterion, as tasks have it."""
        return Criterion(text=self.text, weight=self.weight, polarity=self.polarity, must_have=self.must_have)


class JurorVerdict(_Recorded):
    """The verdict of one model of a jury."""

    model: Text
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight of its vote."""
    verdict: Text | None
    """The letter of the best response, `tie`, or None."""
    scores: list[float | None] | None = None
    """For each response its mean score; None if the model gave none."""
    correct: float | None = None
    """The credit by the label; None without a label."""
    stop: Text
    """`verdict`, or why there is none."""
    confidence: float | None = None
    """The confidence that decided whether the next model was asked; None if no model was next."""
    samples: list[Index]
    """Numbers of the samples in the row's views that this model gave; empty if the next model was asked, of
    which the row has the views."""
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class JudgedConfidence(_Recorded):
    """The confidence by which a verdict was kept or left open."""

    name: Confidence
    value: float | None
    """None if the judgment does not have this confidence, such as a margin without scores."""
    below: float
    """Verdicts with a lower confidence are left open."""
    verdict: Text | None
    """The verdict, also if it was left open."""


class RecordedReward(_Recorded):
    """The reward of a view, or the reason why there is none."""

    total: Number | None
    unscored: Text = ""
    parts: dict[Text, Number | None] = Field(default_factory=dict)


class LastTurn(NamedTuple):
    """The end of a dialogue."""

    text: str
    hidden: str
    """Hidden thinking."""


class Dialogue(_Recorded):
    """The facts about one dialogue that the row of a file and an answer share."""

    view: Text
    """The order in the row's letters, such as `BA`; the index of a response that was judged alone."""
    criterion: Index | None = None
    """Index of the criterion that the dialogue was about; None without criteria."""
    sample: Index = 0
    """Number of the sample, from 0."""
    order: list[Index]
    """Index of the response at each shown position."""
    verdict: Any
    stop: Text
    """`verdict`, or the reason why there is none."""
    detail: Text = ""


class RecordedView(Dialogue):
    """One dialogue of a row."""

    verdict: RecordedVerdict | None
    segments: list[RecordedPassage]
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    seconds: Seconds = 0.0
    reward: RecordedReward | None = None

    @classmethod
    def of(
        cls, trajectory: Trajectory, task: JudgeTask, *, texts: bool = True, reward: Score | None = None
    ) -> RecordedView:
        """Return the record of a trajectory on a task; see `Judgment.row` for `texts`."""
        segments = passages(trajectory)
        programs = [passage for passage in segments if passage["kind"] == "program"]
        for program, call in zip(programs, trajectory.calls, strict=False):
            if not isinstance(call.outcome, Refused) and not call.request.tool:
                program["bindings"] = _references(call.request.bindings, task, texts=texts)
        verdict, criterion = trajectory.verdict, trajectory.view.criterion
        optional: dict[str, Any] = {} if criterion is None else {"criterion": criterion}
        optional |= {} if reward is None else {"reward": RecordedReward(**reward_record(reward))}
        return cls(
            view=trajectory.view.name,
            sample=trajectory.sample,
            order=list(trajectory.view.order),
            verdict=None if verdict is None else RecordedVerdict(**verdict_record(verdict)),
            stop=trajectory.stop.value,
            detail=trajectory.detail,
            segments=[RecordedPassage(**passage) for passage in segments],
            prompt_tokens=trajectory.usage.prompt_tokens,
            completion_tokens=trajectory.usage.completion_tokens,
            seconds=round(trajectory.seconds, 3),
            **optional,
        )

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


class RecordedRow(_Recorded):
    """A row of a result file (see `docs/results.md`)."""

    id: Text
    format: Text = ""
    verdict: Text | None
    choice: Index | None = None
    scores: list[float | None] | None = None
    label: Index | None = None
    strength: Any = None
    checklist: list[Text] = Field(default_factory=list)
    correct: float | None = None
    stop: Text
    detail: Text = ""
    domain: Text = ""
    tags: list[Text] = Field(default_factory=list)
    prompt: list[RecordedMessage] | None = None
    """None, like `responses`, in rows that were written with `--no-texts`."""
    responses: list[Text | list[RecordedMessage]] | None = None
    """Texts, and transcripts as lists of messages."""
    tools: list[RecordedTool] = Field(default_factory=list)
    sources: list[Text] = Field(default_factory=list)
    """Name of the source of each response; empty if nobody named them."""
    reference: Text = ""
    criteria: list[JudgedCriterion] = Field(default_factory=list)
    confidence: JudgedConfidence | None = None
    """None if the run left no verdicts open."""
    jury: list[JurorVerdict] = Field(default_factory=list)
    """The verdict of each model that was asked; empty for a judge of one model."""
    views: list[RecordedView]
    programs: Index = 0
    programs_failed: Index = 0
    programs_refused: Index = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    seconds: Seconds = 0.0
    model: Text = ""
    note: Text = ""
    where: Text = ""
    cut: bool = False
    digest: Text = ""

    def to_json(self) -> JsonObject:
        """Return the row as JSON values, without the fields that are not set."""
        return self.model_dump(exclude_unset=True)

    @property
    def candidates(self) -> int:
        """Number of responses, also where their texts are not in the file."""
        return 1 + max((index for view in self.views for index in view.order), default=0)

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The prompt, as tasks have it; empty if it is not in the file."""
        return tuple(one.message for one in self.prompt or ())

    @property
    def shown_responses(self) -> tuple[Response, ...]:
        """The responses, as tasks have them; empty if they are not in the file."""
        return tuple(
            one if isinstance(one, str) else tuple(said.message for said in one)
            for one in self.responses or ()
        )

    @property
    def named_verdict(self) -> Text:
        """The verdict, with the name of the chosen response's source; empty without a verdict."""
        if self.choice is None or self.choice >= len(self.sources):
            return self.verdict or ""
        return f"{self.verdict} {self.sources[self.choice]}"

    @property
    def flipped(self) -> bool:
        """True if two orders of the same responses and sample have verdicts for different responses.

        With criteria, orders are compared within each criterion.
        """
        chosen: dict[tuple[int | None, int, tuple[int, ...]], set[frozenset[str]]] = {}
        for view in self.views:
            if view.verdict is not None and len(view.order) > 1:
                place = view.criterion, view.sample, tuple(sorted(view.order))
                chosen.setdefault(place, set()).add(view.verdict.best)
        return any(len(verdicts) > 1 for verdicts in chosen.values())

    def variables(self, program: RecordedPassage) -> dict[str, Any]:
        """Return the variables of a program. Raises ValueError if the row lacks a variable."""
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
            return conversation_data(self.conversation)
        if reference == _TOOLS:
            return [tool.model_dump() for tool in self.tools]
        shown = self.shown_responses
        if isinstance(reference, list):
            return [self._response(one, shown) for one in reference]
        return self._response(reference, shown)

    @staticmethod
    def _response(index: Any, responses: Sequence[Response]) -> Any:
        if not isinstance(index, int) or not 0 <= index < len(responses):
            raise ValueError("one of its variables refers to a response that the row does not have")
        return response_data(responses[index])


def model_of(view: Dialogue, jury: Sequence[JurorVerdict]) -> Text:
    """Return the model of a jury whose dialogue a view is; empty for a judge of one model."""
    return next((one.model for one in jury if view.sample in one.samples), "")


def verdict_credit(best: Sequence[int], label: int) -> float:
    """Return 1 for the label alone, 1 / k for a tie of k with it, and 0 for another or no verdict.

    `best` holds the candidates that share the first place. The mean over labelled rows is the accuracy that
    every command prints, under the name of the protocol `verdict`.
    """
    return 1 / len(best) if label in best else 0.0


def read_result_row(fields: Mapping[str, Any], where: str) -> RecordedRow:
    """Return a row of a result file; raises ValueError, in one line that begins with `where`."""
    try:
        return RecordedRow.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"{where}: not a row of a result file ({first_fault(error)})") from None


def read_result_rows(path: Path) -> Iterator[tuple[RecordedRow, Mapping[str, Any]]]:
    """Yield the complete rows of a result file, each with its fields as they are in the file.

    Raises OSError for a missing file, and ValueError, with file and line, for another kind of file.
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


def _references(bindings: Mapping[str, Any], task: JudgeTask, *, texts: bool) -> dict[str, Any] | None:
    """Return a program's variables, with references in place of the row's texts.

    A reference is `"prompt"`, `"reference"`, `"tools"`, the index of a response, or a list of indices; any
    other value is `{"value": ...}`. None if there are such values and `texts` are left out.
    """
    prompt, tools = conversation_data(task.prompt), list(map(tool_data, task.tools))
    responses = list(map(response_data, task.candidates))

    def place(value: Any) -> int:
        return max(index for index, response in enumerate(responses) if response == value)

    references: dict[str, Any] = {}
    for name, value in bindings.items():
        if value in responses:
            references[name] = place(value)
        elif value == prompt:
            references[name] = _PROMPT
        elif task.reference and value == task.reference:
            references[name] = _REFERENCE
        elif tools and value == tools:
            references[name] = _TOOLS
        elif isinstance(value, list) and all(one in responses for one in value):
            references[name] = list(map(place, value))
        elif texts:
            references[name] = {"value": value}
        else:
            return None
    return references


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


def call_record(call: Call) -> JsonObject:
    """Return the record of a program or a call, with its output or the reason why it was not run."""
    record: JsonObject = {"source": call.request.source}
    if call.request.tool:
        record["tool"] = call.request.tool
    if isinstance(call.outcome, Refused):
        return record | {"status": "refused", "reason": call.outcome.reason}
    if call.seed is not None:
        record["seed"] = call.seed
    kept = _OUTCOME | _CUT if call.outcome.truncated else _OUTCOME
    record |= _EXECUTION.dump_python(call.outcome, mode="json", include=kept)
    isolation = call.outcome.isolation
    return record | {
        "wall_seconds": round(call.outcome.wall_seconds, 4),
        "cpu_seconds": round(call.outcome.cpu_seconds, 4),
        "placement": isolation.placement if isolation else None,
        "isolation_missing": list(isolation.missing) if isolation else [],
        "detail": call.outcome.detail,
        **({} if call.exchanged is None else {"exchanged": _exchanged(call.exchanged)}),
    }


def _exchanged(execution: Execution) -> JsonObject:
    """Return what the second run of a program ended with and printed, see `Call.exchanged`."""
    recorded: JsonObject = _EXECUTION.dump_python(
        execution, mode="json", include={"status", "stdout", "stderr"}
    )
    return recorded


def failed(call: Call) -> bool:
    """Return True for a program that ran and did not exit with code 0; a refused one did not run."""
    return isinstance(call.outcome, Execution) and call.outcome.status not in (
        Status.OK,
        Status.SANDBOX_FAILED,
    )


def passages(trajectory: Trajectory) -> list[JsonObject]:
    """Split a trajectory into reasoning, programs and outputs, in order: the fields of `RecordedPassage`."""
    calls = deque(trajectory.calls)
    parts: list[JsonObject] = []
    for segment in trajectory.segments:
        if segment.by is By.SANDBOX:
            parts.append({"kind": "output", "text": segment.text})
        else:
            parts.extend(_model_passages(segment, calls))
    return parts


def _model_passages(segment: Segment, calls: deque[Call]) -> Iterator[JsonObject]:
    """Yield the passages of a model segment; its calls are taken from the front of `calls`."""
    if segment.reasoning:
        yield {"kind": "reasoning", "text": segment.reasoning, "hidden": True}
    turn = Turn(segment.text, (calls[0].request.tool,) if calls else ())
    if calls and calls[0].request.call_id is None and turn.program is not None:
        yield from _reasoning(segment.text[: turn.program.start])
        yield _program(calls.popleft())
        yield from _reasoning(segment.text[turn.request_end :])
        return
    yield from _reasoning(segment.text)
    call_ids = {call.id for call in segment.tool_calls}
    while calls and calls[0].request.call_id in call_ids:
        yield _program(calls.popleft())


def _reasoning(text: str) -> Iterator[JsonObject]:
    if text.strip():
        yield {"kind": "reasoning", "text": text}


def _program(call: Call) -> JsonObject:
    record = call_record(call)
    return {"kind": "program", "text": record.pop("source"), **record}


def encodable(text: str) -> str:
    """Escape lone surrogates: a model or a program may write them, and UTF-8 cannot represent them."""
    return text.encode(errors="backslashreplace").decode()
