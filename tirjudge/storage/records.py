"""Trajectories and episodes as JSON records, as result rows and run folders contain them, and back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

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
    Trajectory,
    Unscored,
    Usage,
    Verdict,
    View,
)
from tirjudge_environments.parsing import Turn
from tirjudge_sandbox import Execution, Status

Passage = dict[str, Any]

_MESSAGES = TypeAdapter(tuple[Message, ...])
_SEGMENT = TypeAdapter(Segment)
_SEGMENTS = TypeAdapter(tuple[Segment, ...])
_EXECUTION = TypeAdapter(Execution)
_IDS = TypeAdapter(tuple[int, ...] | None)

_OUTCOME = {"status", "exit_code", "signal", "stdout", "stderr", "truncated", "wall_seconds", "cpu_seconds"}
"""Fields of an execution that a record has, in the order of `Execution`."""
_CUT = {"kept_bytes", "cut_bytes"}
"""Further fields of an execution whose output was cut."""


def episode_record(episode: Episode, scores: Sequence[Score] = ()) -> JsonObject:
    """Return the record of an episode, with its task's id and label.

    `scores`, if given, has one score per trajectory.
    """
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
    """Return the record of a trajectory: prompt, turns, programs, verdict, and what it cost.

    `prompt` includes the judge's own prompt. `ids` includes token ids and logprobs, by far the larger part.
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
        record["prompt"] = _MESSAGES.dump_python(trajectory.prompt.messages, mode="json")
        record["prefill"] = trajectory.prompt.prefill
    if ids:
        record["prompt_ids"] = _IDS.dump_python(trajectory.prompt_ids, mode="json")
    return record


def read_trajectory(record: Mapping[str, Any]) -> Trajectory:
    """Return the trajectory of a record.

    Bindings, stop strings, tools and isolation are not in a record. Raises KeyError or ValueError for
    anything that is not the record of a trajectory.
    """
    segments = _SEGMENTS.validate_python(record["segments"])
    answered = [segment.call_id for segment in segments if segment.by is By.SANDBOX]
    unanswered = [None] * (len(record["programs"]) - len(answered))
    return Trajectory(
        view=View(record["view"], tuple(record["order"])),
        sample=record["sample"],
        prompt=Prompt(
            messages=_MESSAGES.validate_python(record.get("prompt", ())), prefill=record.get("prefill", "")
        ),
        prompt_ids=_IDS.validate_python(record.get("prompt_ids")),
        segments=segments,
        calls=tuple(map(_read_call, record["programs"], (*answered, *unanswered))),
        stop=StopReason(record["stop"]),
        verdict=_read_verdict(record["verdict"]),
        detail=record["detail"],
        usage=Usage(record["prompt_tokens"], record["completion_tokens"]),
        seconds=record["seconds"],
    )


def verdict_record(verdict: Verdict | None) -> JsonObject | None:
    """Return the record of a verdict; `parsed` is left out if it is empty."""
    if verdict is None:
        return None
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
    """Return the record of a program, with its output or the reason why it was not run."""
    record: JsonObject = {"source": call.request.source}
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


def passages(trajectory: Trajectory) -> list[Passage]:
    """Split a trajectory into reasoning, programs and outputs, in order.

    Each passage has a `kind` and a `text`; together they contain the whole dialogue except for fence lines.

    * `reasoning`: what the model wrote. `hidden` marks thinking that the endpoint returned separately.
    * `program`: what the model asked to run, with the status and the whole output of the run, or the reason
      why it was refused.
    * `output`: the part of that output that the model was shown.
    """
    calls = deque(trajectory.calls)
    parts: list[Passage] = []
    for segment in trajectory.segments:
        if segment.by is By.SANDBOX:
            parts.append({"kind": "output", "text": segment.text})
        else:
            parts.extend(_model_passages(segment, calls))
    return parts


def _model_passages(segment: Segment, calls: deque[Call]) -> Iterator[Passage]:
    """Yield the passages of a model segment; its calls are taken from the front of `calls`."""
    if segment.reasoning:
        yield {"kind": "reasoning", "text": segment.reasoning, "hidden": True}
    turn = Turn(segment.text)
    if calls and calls[0].request.call_id is None and turn.program is not None:
        yield from _reasoning(segment.text[: turn.program.start])
        yield _program(calls.popleft())
        yield from _reasoning(segment.text[turn.request_end :])
        return
    yield from _reasoning(segment.text)
    call_ids = {call.id for call in segment.tool_calls}
    while calls and calls[0].request.call_id in call_ids:
        yield _program(calls.popleft())


def _reasoning(text: str) -> Iterator[Passage]:
    if text.strip():
        yield {"kind": "reasoning", "text": text}


def _program(call: Call) -> Passage:
    record = call_record(call)
    return {"kind": "program", "text": record.pop("source"), **record}


def _segment(segment: Segment, *, ids: bool) -> JsonObject:
    # Empty fields are left out. Ids come last, and are written even if there are none.
    record: JsonObject = _SEGMENT.dump_python(
        segment, mode="json", exclude={"ids", "logprobs"}, exclude_defaults=True
    )
    if ids:
        record["ids"] = None if segment.ids is None else list(segment.ids)
        scored = segment.by is By.MODEL and segment.logprobs is not None
        record["logprobs"] = list(segment.logprobs or ()) if scored else None
    return record


def _read_call(record: Mapping[str, Any], call_id: str | None) -> Call:
    request = RunCode(record["source"], call_id=call_id)
    if record["status"] == "refused":
        return Call(request, Refused(record["reason"]))
    again = record.get("exchanged")
    exchanged = None if again is None else _EXECUTION.validate_python(again)
    return Call(request, _EXECUTION.validate_python(dict(record)), record.get("seed"), exchanged)


def _read_verdict(record: Mapping[str, Any] | None) -> Verdict | None:
    if record is None:
        return None
    # Not validated by type: whole scores are written as integers, and stay what they were.
    scores = {int(candidate): score for candidate, score in record["scores"].items()}
    return Verdict(choice=record["choice"], scores=scores, tie=record["tie"])
