"""Records: trajectories and episodes as JSON objects, as result rows and run folders hold them, and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tirjudge.storage.run_folder import JsonObject
from tirjudge_environments import (
    By,
    Call,
    Episode,
    Message,
    Prompt,
    Refused,
    RunCode,
    Score,
    Segment,
    StopReason,
    ToolCall,
    Trajectory,
    Unscored,
    Usage,
    Verdict,
    View,
)
from tirjudge_environments.parsing import Turn
from tirjudge_sandbox import Execution, Status


def episode_record(episode: Episode, scores: Sequence[Score] = ()) -> JsonObject:
    """An episode with its task's id and label; `scores`, if given, hold one per trajectory."""
    trajectories = [trajectory_record(trajectory) for trajectory in episode.trajectories]
    for record, score in zip(trajectories, scores, strict=False):
        record["reward"] = reward_record(score)
    return {
        "id": episode.task.id,
        "domain": episode.task.domain,
        "label": episode.task.label,
        "sample": episode.sample,
        "trajectories": trajectories,
    }


def trajectory_record(trajectory: Trajectory, *, prompt: bool = True, ids: bool = False) -> JsonObject:
    """A trajectory: what was asked, every turn and program, the verdict and what it cost.

    `prompt` includes the judge's own prompt; `ids` the token ids and logprobs, much the larger part.
    """
    record: JsonObject = {
        "view": trajectory.view.name,
        "order": list(trajectory.view.order),
        "sample": trajectory.sample,
        "stop": trajectory.stop.value,
        "detail": trajectory.detail,
        "verdict": verdict_record(trajectory.verdict),
        "segments": [_segment(segment, ids=ids) for segment in trajectory.segments],
        "programs": [call_record(call) for call in trajectory.calls],
        "prompt_tokens": trajectory.usage.prompt_tokens,
        "completion_tokens": trajectory.usage.completion_tokens,
        "seconds": round(trajectory.seconds, 3),
    }
    if prompt:
        record["prompt"] = [message_record(message) for message in trajectory.prompt.messages]
        record["prefill"] = trajectory.prompt.prefill
    if ids:
        record["prompt_ids"] = _list(trajectory.prompt_ids)
    return record


def read_trajectory(record: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a record, as far as the record tells: without bindings, stop strings and tools.

    Raises KeyError or ValueError for what is no record of a trajectory.
    """
    segments = tuple(map(_read_segment, record["segments"]))
    answered = [segment.call_id for segment in segments if segment.by is By.SANDBOX]
    unanswered = [None] * (len(record["programs"]) - len(answered))
    return Trajectory(
        view=View(record["view"], tuple(record["order"])),
        sample=record["sample"],
        prompt=Prompt(
            messages=tuple(Message(**message) for message in record.get("prompt", ())),
            prefill=record.get("prefill", ""),
        ),
        prompt_ids=_tuple(record.get("prompt_ids")),
        segments=segments,
        calls=tuple(map(_read_call, record["programs"], (*answered, *unanswered))),
        stop=StopReason(record["stop"]),
        verdict=_read_verdict(record["verdict"]),
        detail=record["detail"],
        usage=Usage(record["prompt_tokens"], record["completion_tokens"]),
        seconds=record["seconds"],
    )


def message_record(message: Message) -> JsonObject:
    return {"role": message.role, "content": message.content}


def verdict_record(verdict: Verdict | None) -> JsonObject | None:
    if verdict is None:
        return None
    return {
        "choice": verdict.choice,
        "tie": verdict.tie,
        "scores": {str(candidate): score for candidate, score in verdict.scores.items()},
        **({"parsed": dict(verdict.parsed)} if verdict.parsed else {}),
    }


def reward_record(score: Score) -> JsonObject:
    if isinstance(score, Unscored):
        return {"total": None, "unscored": score.reason}
    return {"total": score.total, "parts": dict(score.parts)}


def call_record(call: Call) -> JsonObject:
    """A program as it was asked for, and its output or the reason why it was not run."""
    record: JsonObject = {"source": call.request.source}
    if isinstance(call.outcome, Refused):
        return record | {"status": "refused", "reason": call.outcome.reason}
    return record | _execution(call.outcome)


def failed(call: Call) -> bool:
    """A program that ran and ended other than by itself with exit code 0; refusals are not programs run."""
    return isinstance(call.outcome, Execution) and call.outcome.status not in (
        Status.OK,
        Status.SANDBOX_FAILED,
    )


def _execution(execution: Execution) -> JsonObject:
    return {
        "status": execution.status.value,
        "exit_code": execution.exit_code,
        "signal": execution.signal,
        "stdout": execution.stdout,
        "stderr": execution.stderr,
        "truncated": execution.truncated,
        "wall_seconds": round(execution.wall_seconds, 4),
        "cpu_seconds": round(execution.cpu_seconds, 4),
        "placement": execution.isolation.placement if execution.isolation else None,
        "isolation_missing": list(execution.isolation.missing) if execution.isolation else [],
        "detail": execution.detail,
    }


def _segment(segment: Segment, *, ids: bool) -> JsonObject:
    record: JsonObject = {"by": segment.by.value, "text": segment.text}
    if segment.reasoning:
        record["reasoning"] = segment.reasoning
    if segment.tool_calls:
        record["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in segment.tool_calls
        ]
    if segment.call_id is not None:
        record["call_id"] = segment.call_id
    if ids:
        record["ids"] = _list(segment.ids)
        record["logprobs"] = _list(segment.logprobs) if segment.by is By.MODEL else None
    return record


def _read_segment(record: Mapping[str, Any]) -> Segment:
    return Segment(
        by=By(record["by"]),
        text=record["text"],
        ids=_tuple(record.get("ids")),
        logprobs=_tuple(record.get("logprobs")),
        reasoning=record.get("reasoning", ""),
        tool_calls=tuple(ToolCall(**call) for call in record.get("tool_calls", ())),
        call_id=record.get("call_id"),
    )


def _read_call(record: Mapping[str, Any], call_id: str | None) -> Call:
    request = RunCode(record["source"], call_id=call_id)
    if record["status"] == "refused":
        return Call(request, Refused(record["reason"]))
    told = ("exit_code", "signal", "stdout", "stderr", "truncated", "wall_seconds", "cpu_seconds", "detail")
    return Call(request, Execution(status=Status(record["status"]), **{name: record[name] for name in told}))


def _read_verdict(record: Mapping[str, Any] | None) -> Verdict | None:
    if record is None:
        return None
    scores = {int(candidate): score for candidate, score in record["scores"].items()}
    return Verdict(choice=record["choice"], scores=scores, tie=record["tie"])


def _tuple(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


Passage = dict[str, Any]


def passages(trajectory: Trajectory) -> list[Passage]:
    """In order, each with its `kind` and `text`, and nothing of the dialogue left out but fence lines.

    `reasoning`: what the model wrote (`hidden`: thinking that the endpoint returned apart). `program`: what
    it asked to be run, with the status and the whole output of the run, or why it was refused. `output`: what
    it was shown of that.
    """
    calls = deque(trajectory.calls)
    found: list[Passage] = []
    for segment in trajectory.segments:
        if segment.by is By.SANDBOX:
            found.append({"kind": "output", "text": segment.text})
        else:
            found.extend(_of_model(segment, calls))
    return found


def _of_model(segment: Segment, calls: deque[Call]) -> Iterator[Passage]:
    """Takes the calls that this segment made from the front of `calls`."""
    if segment.reasoning:
        yield {"kind": "reasoning", "text": segment.reasoning, "hidden": True}
    turn = Turn(segment.text)
    if calls and calls[0].request.call_id is None and turn.program is not None:
        yield from _reasoning(segment.text[: turn.program.start])
        yield _program(calls.popleft())
        yield from _reasoning(segment.text[turn.request_end :])
        return
    yield from _reasoning(segment.text)
    asked = {call.id for call in segment.tool_calls}
    while calls and calls[0].request.call_id in asked:
        yield _program(calls.popleft())


def _reasoning(text: str) -> Iterator[Passage]:
    if text.strip():
        yield {"kind": "reasoning", "text": text}


def _program(call: Call) -> Passage:
    record = call_record(call)
    return {"kind": "program", "text": record.pop("source"), **record}
