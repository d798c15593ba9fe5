"""Judged rows: the rows of a result file, written from trajectories and read back to be shown or reproduced.

Fields that are not set are left out of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError

from tirjudge.records.verdicts import (
    AuditedCriterion,
    Count,
    Index,
    JudgedConfidence,
    JudgedCriterion,
    JurorVerdict,
    Recorded,
    RecordedReward,
    RecordedVerdict,
    Seconds,
    Text,
    reward_record,
    verdict_record,
)
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge.storage.kept_files import KeptFiles
from tirjudge_environments import (
    By,
    Call,
    JudgeTask,
    Message,
    Refused,
    Response,
    Score,
    Segment,
    ToolCall,
    Trajectory,
)
from tirjudge_environments.files.folder import Folder
from tirjudge_environments.messages import conversation_data, response_data, tool_data
from tirjudge_environments.programs.evidence import ended_well, evidence_of
from tirjudge_environments.registry import first_fault
from tirjudge_environments.session import is_question
from tirjudge_environments.turn_reader import Turn
from tirjudge_sandbox import Execution, Status

_PROMPT, _REFERENCE, _TOOLS = "prompt", "reference", "tools"
"""In a program's variables, the row's prompt, its reference answer and its tools."""
_PROMPT_FILES, _FILES = "prompt_files", "files"
"""In a program's variables, the files that were given, and the key of the index of a response's files."""
_EXECUTION = TypeAdapter(Execution)
_OUTCOME = {"status", "exit_code", "signal", "stdout", "stderr", "truncated", "wall_seconds", "cpu_seconds"}
"""Fields of an execution that a record has, in the order of `Execution`."""
_CUT = {"kept_bytes", "cut_bytes"}
"""Further fields of an execution whose output was cut."""
_AGAIN = {"status", "stdout", "stderr"}
"""Fields of an execution with the responses exchanged, see `Call.exchanged`."""


class RecordedFunction(Recorded):
    """The name and the arguments of a call."""

    name: Text
    arguments: Text


class RecordedCall(Recorded):
    """A call of a tool, in OpenAI's form."""

    id: Text
    type: Literal["function"] = "function"
    function: RecordedFunction


class RecordedMessage(Recorded):
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


class RecordedTool(Recorded):
    """A tool that was offered for the responses, in OpenAI's form."""

    type: Literal["function"] = "function"
    function: dict[Text, Any]


class RecordedFile(Recorded):
    """A file that a response left behind; its content is in the folder of `KeptFiles`."""

    sha256: Text
    bytes: Count


class RecordedPassage(Recorded):
    """A part of a dialogue. All passages of a dialogue contain the whole of it except for fence lines."""

    kind: Literal["reasoning", "program", "output", "question"]
    """`reasoning`: text of the model. `program`: the requested program, or the arguments of a called tool,
    with the whole outcome. `output`: the part of the outcome shown to the model. `question`: the turn that
    asked for the verdict alone (`ask_for_verdict`)."""
    text: Text
    hidden: bool = False
    """True for thinking that the endpoint returned separately."""
    tool: Text = ""
    """The name of the tool that was called; empty for a program."""
    written: Text = ""
    """The program as the judge wrote it, where look-alikes of tags were turned back before it ran."""
    is_check: bool = False
    """True for a function `check`, which ran once for each response, see `RunCode.is_check`."""
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
    """References to the row's texts, which `ResultRow.variables` resolves; None where `--no-texts` left out
    a value."""


class LastTurn(NamedTuple):
    """The end of a dialogue."""

    text: str
    hidden: str
    """Hidden thinking."""


class Dialogue(Recorded):
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
    evidence: Text = ""
    """A value of `tirjudge_environments.Evidence`; empty if none was recorded."""
    contested: bool = False
    """True if the last turn states two different verdicts."""
    exposed: bool = False
    """True if the format's `boundary` was off, and a shown text holds a token of the format."""

    @classmethod
    def of(
        cls,
        trajectory: Trajectory,
        task: JudgeTask,
        *,
        texts: bool = True,
        reward: Score | None = None,
        evidence: bool = False,
    ) -> RecordedView:
        """Return the record of a trajectory on a task, with or without its `evidence`.

        See `Judgment.row` for `texts`.
        """
        segments = passages(trajectory, texts=texts)
        programs = [passage for passage in segments if passage["kind"] == "program"]
        for program, call in zip(programs, trajectory.calls, strict=False):
            if not isinstance(call.outcome, Refused) and not call.request.tool:
                program["bindings"] = _references(
                    call.request.bindings, task, trajectory.view.order, texts=texts
                )
        verdict, criterion = trajectory.verdict, trajectory.view.criterion
        optional: dict[str, Any] = {} if criterion is None else {"criterion": criterion}
        optional |= {} if reward is None else {"reward": RecordedReward(**reward_record(reward))}
        optional |= {"evidence": evidence_of(trajectory).value} if evidence else {}
        flags = {"contested": trajectory.contested, "exposed": trajectory.exposed}
        optional |= {name: True for name, is_set in flags.items() if is_set}
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
    def earlier_turns(self) -> list[str]:
        """The judge's words before each program, each call and the question for the verdict alone."""
        turns = [""]
        for passage in self.segments:
            if passage.kind in ("output", "question"):
                turns.append("")
            elif passage.kind == "reasoning" and not passage.hidden:
                turns[-1] += passage.text
        return turns[:-1]

    @property
    def last_turn(self) -> LastTurn:
        """The judge's words after its last program, or after it was asked for the verdict alone."""
        text = hidden = ""
        for passage in self.segments:
            if passage.kind != "reasoning":
                text = hidden = ""
            elif passage.hidden:
                hidden += passage.text
            else:
                text += passage.text
        return LastTurn(text, hidden)


class ResultRow(Recorded):
    """A row of a result file (see `docs/results.md`)."""

    id: Text
    format: Text = ""
    verdict: Text | None
    choice: Index | None = None
    scores: list[float | None] | None = None
    label: Index | None = None
    rating: bool | float | None = None
    """People's judgement of a single response: True or False for pass or fail, a number for a rating."""
    satisfied_from: float | None = None
    """The lowest score with which a single response passes; None for several responses."""
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
    files: list[dict[Text, RecordedFile]] = Field(default_factory=list)
    """The files of each response by their paths; empty without any."""
    prompt_files: dict[Text, RecordedFile] = Field(default_factory=dict)
    reference: Text = ""
    criteria: list[JudgedCriterion] = Field(default_factory=list)
    audit: list[AuditedCriterion] = Field(default_factory=list)
    """The model's verdicts on criteria that checkers decided; empty for a row that is not audited."""
    confidence: JudgedConfidence | None = None
    """None if the run left no verdicts open."""
    jury: list[JurorVerdict] = Field(default_factory=list)
    """The verdict of each model that was asked; empty for a judge of one model."""
    decided: bool | None = None
    """True if programs decided the verdict, False for a guess, None if unknown."""
    guess: Text = ""
    """The judge's own verdict, where the row is a tie because no program decided it."""
    views: list[RecordedView]
    earlier: dict[Text, list[RecordedView]] = Field(default_factory=dict)
    """The dialogues of each model that was not sure enough, so that the next one was asked."""
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
    _kept: KeptFiles | None = PrivateAttr(default=None)
    _folders: dict[int, Folder] = PrivateAttr(default_factory=dict)

    def to_json(self) -> JsonObject:
        """Return the row as JSON values, without the fields that are not set."""
        return self.model_dump(exclude_unset=True)

    @property
    def candidates(self) -> int:
        """Number of responses, also where their texts are not in the file."""
        return 1 + max((index for view in self.views for index in view.order), default=0)

    @property
    def all_views(self) -> tuple[RecordedView, ...]:
        """All dialogues, those of earlier models first."""
        return (*(view for views in self.earlier.values() for view in views), *self.views)

    @property
    def verdict_decided(self) -> bool | None:
        """`decided` of a row with a verdict: the rows that a summary counts. None for any other row."""
        return self.decided if self.stop == "verdict" else None

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The prompt, as in tasks; empty if the file lacks the prompt."""
        return tuple(one.message for one in self.prompt or ())

    @property
    def shown_responses(self) -> tuple[Response, ...]:
        """The responses, as in tasks; empty if the file lacks the responses."""
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

    def folder(self, index: int | None) -> Folder:
        """Return the files of a response, or with None those of the prompt.

        Raises ValueError, in one line, if their contents are not beside the result file.
        """
        place = -1 if index is None else index
        if not -1 <= place < len(self.files):
            raise ValueError("one of its variables refers to files that the row does not have")
        if place not in self._folders:
            if self._kept is None:
                raise ValueError("the contents of its files are not beside a result file")
            recorded = self.prompt_files if index is None else self.files[index]
            digests = {path: file.sha256 for path, file in recorded.items()}
            self._folders[place] = self._kept.folder(digests)
        return self._folders[place]

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
        if reference == _PROMPT_FILES:
            return self.folder(None)
        if isinstance(reference, Mapping):
            index = reference.get(_FILES)
            return self.folder(index if isinstance(index, int) and index >= 0 else len(self.files))
        if reference == _PROMPT:
            return conversation_data(self.conversation)
        if reference == _TOOLS:
            return [tool.model_dump() for tool in self.tools]
        shown = self.shown_responses
        if isinstance(reference, list):
            return [
                self._value(one) if isinstance(one, Mapping) else self._response(one, shown)
                for one in reference
            ]
        return self._response(reference, shown)

    @staticmethod
    def _response(index: Any, responses: Sequence[Response]) -> Any:
        if not isinstance(index, int) or not 0 <= index < len(responses):
            raise ValueError("one of its variables refers to a response that the row does not have")
        return response_data(responses[index])


def model_of(view: Dialogue, jury: Sequence[JurorVerdict]) -> Text:
    """Return the model of a jury whose dialogue a view is; empty for a judge of one model."""
    return next((one.model for one in jury if view.sample in one.samples), "")


def read_result_row(fields: Mapping[str, Any], where: str) -> ResultRow:
    """Return a row of a result file; raises ValueError, in one line that begins with `where`."""
    try:
        return ResultRow.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"{where}: not a row that tirjudge judge writes ({first_fault(error)})") from None


def read_result_rows(path: Path) -> Iterator[tuple[ResultRow, Mapping[str, Any]]]:
    """Yield the complete rows of a result file, each with its fields as they are in the file.

    Raises OSError for a missing file, and ValueError, with file and line, for another kind of file.
    """
    # Raises OSError for a missing file, which `read_lines` takes for an empty one.
    path.stat()
    kept = KeptFiles(path)
    for number, fields in enumerate(read_lines(path), 1):
        row = read_result_row(fields, f"{path}:{number}")
        row._kept = kept
        yield row, fields


def is_result_file(path: Path) -> bool:
    """Return True for a file of JSON lines whose first complete row may be one of a result file."""
    try:
        first = next(read_lines(path), None)
    except ValueError:  # a table, an array, or no rows at all
        return False
    return first is not None and "views" in first and "stop" in first


def is_truncated(path: Path) -> bool:
    """Return True if a file does not end with a line break: its last row was not written completely."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")


def _references(
    bindings: Mapping[str, Any], task: JudgeTask, order: Sequence[int], *, texts: bool
) -> dict[str, Any] | None:
    """Return a program's variables, with references in place of the row's texts.

    A reference is `"prompt"`, `"reference"`, `"tools"`, the index of a response, `"prompt_files"`,
    `{"files": INDEX}` for the files of a response, or a list of these; any other value is `{"value": ...}`.
    None if there are such values and `texts` are left out.
    """
    prompt, tools = conversation_data(task.prompt), list(map(tool_data, task.tools))
    responses = list(map(response_data, task.candidates))

    named = [name for name in bindings if name.startswith("response_")]

    def place(value: Any, position: int) -> int:
        # Several responses may have this text, as those of agents that only say that they are done.
        shown = order[position] if position < len(order) else 0
        return shown if responses[shown] == value else responses.index(value)

    def files(folder: Folder) -> Any:
        return _PROMPT_FILES if folder is task.prompt_files else {_FILES: task.files.index(folder)}

    references: dict[str, Any] = {}
    for name, value in bindings.items():
        if isinstance(value, Folder):
            references[name] = files(value)
        elif isinstance(value, list) and value and all(isinstance(one, Folder) for one in value):
            references[name] = list(map(files, value))
        elif value in responses:
            references[name] = place(value, named.index(name) if name in named else 0)
        elif value == prompt:
            references[name] = _PROMPT
        elif task.reference and value == task.reference:
            references[name] = _REFERENCE
        elif tools and value == tools:
            references[name] = _TOOLS
        elif isinstance(value, list) and all(one in responses for one in value):
            references[name] = [place(one, position) for position, one in enumerate(value)]
        elif texts:
            references[name] = {"value": value}
        else:
            return None
    return references


def file_records(folder: Folder) -> dict[str, RecordedFile]:
    """Return the records of a folder's files, by their paths."""
    return {
        path: RecordedFile(sha256=digest, bytes=len(folder.files[path]))
        for path, digest in folder.digests.items()
    }


def call_record(call: Call) -> JsonObject:
    """Return the record of a program or a call, with its output or the reason why it was not run."""
    record: JsonObject = {"source": call.request.source}
    marked = {name: getattr(call.request, name) for name in ("tool", "written", "is_check")}
    record |= {name: value for name, value in marked.items() if value}
    if isinstance(call.outcome, Refused):
        return record | {"status": "refused", "reason": call.outcome.reason}
    if call.seed is not None:
        record["seed"] = call.seed
    kept = _OUTCOME | _CUT if call.outcome.truncated else _OUTCOME
    record |= _EXECUTION.dump_python(call.outcome, mode="json", include=kept)
    isolation = call.outcome.isolation
    record |= {
        "wall_seconds": round(call.outcome.wall_seconds, 4),
        "cpu_seconds": round(call.outcome.cpu_seconds, 4),
        "placement": isolation.placement if isolation else None,
        "isolation_missing": list(isolation.missing) if isolation else [],
        "detail": call.outcome.detail,
    }
    if call.exchanged is not None:
        record["exchanged"] = _EXECUTION.dump_python(call.exchanged, mode="json", include=_AGAIN)
    return record


def failed(call: Call) -> bool:
    """Return True for a program that ran and did not end well; a refused one did not run."""
    ran = isinstance(call.outcome, Execution) and call.outcome.status is not Status.SANDBOX_FAILED
    return ran and not ended_well(call)


def passages(trajectory: Trajectory, *, texts: bool = True) -> list[JsonObject]:
    """Split a trajectory into reasoning, programs and outputs, in order: the fields of `RecordedPassage`.

    Without `texts`, outputs lack the part of the task that a format shows only then.
    """
    calls, prefill = deque(trajectory.calls), trajectory.prompt.prefill
    parts: list[JsonObject] = []
    for segment, after in zip_longest(trajectory.segments, trajectory.segments[1:]):
        if segment.by is By.SANDBOX:
            kind = "question" if is_question(segment) else "output"
            parts.append({"kind": kind, "text": segment.text[0 if texts else segment.later :]})
        else:
            answered = after is None or (after.by is By.SANDBOX and not is_question(after))
            parts.extend(_model_passages(segment, calls, answered, prefill))
            prefill = ""
    return parts


def _model_passages(
    segment: Segment, calls: deque[Call], answered: bool, prefill: str
) -> Iterator[JsonObject]:
    """Yield the passages of a model segment; its calls are taken from the front of `calls`.

    An `answered` segment asked for the next call in any form that its format reads. A program may begin in
    the `prefill` of the first segment.
    """
    if segment.reasoning:
        yield {"kind": "reasoning", "text": segment.reasoning, "hidden": True}
    turn = Turn(prefill + segment.text, (calls[0].request.tool,) if calls else ())
    if answered and calls and calls[0].request.call_id is None:
        start, end = len(prefill), len(turn.text)
        yield from _reasoning(turn.text[start : turn.program.start if turn.program else end])
        yield _program(calls.popleft())
        yield from _reasoning(turn.text[max(start, turn.request_end) if turn.program else end :])
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
