"""Episodes of a training run as JSON records, in the shapes of judged rows, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from tirjudge.records.result_row import call_record
from tirjudge.records.verdicts import reward_record, verdict_record
from tirjudge.storage.json_lines import JsonObject
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
    Usage,
    Verdict,
    View,
)
from tirjudge_sandbox import Execution

_MESSAGES = TypeAdapter(tuple[Message, ...])
_SEGMENT = TypeAdapter(Segment)
_SEGMENTS = TypeAdapter(tuple[Segment, ...])
_EXECUTION = TypeAdapter(Execution)
_IDS = TypeAdapter(tuple[int, ...] | None)


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


def trajectory_record(trajectory: Trajectory, *, ids: bool = False) -> JsonObject:
    """Return the record of a trajectory: prompt, turns, programs, verdict, and what it cost.

    `ids` includes token ids and logprobs, by far the larger part.
    """
    record: JsonObject = {
        "view": trajectory.view.name,
        "order": list(trajectory.view.order),
        "sample": trajectory.sample,
        "stop": trajectory.stop.value,
        "detail": trajectory.detail,
        "verdict": None if trajectory.verdict is None else verdict_record(trajectory.verdict),
        "segments": [_segment(segment, ids=ids) for segment in trajectory.segments],
        "programs": [call_record(call) for call in trajectory.calls],
        "prompt_tokens": trajectory.usage.prompt_tokens,
        "completion_tokens": trajectory.usage.completion_tokens,
        "seconds": round(trajectory.seconds, 3),
        "prompt": _MESSAGES.dump_python(trajectory.prompt.messages, mode="json"),
        "prefill": trajectory.prompt.prefill,
    }
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
    # Only the last programs of a dialogue can lack an output that was shown.
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


def _segment(segment: Segment, *, ids: bool) -> JsonObject:
    # Empty fields are left out. Ids come last, and are written even if there are none.
    record: JsonObject = _SEGMENT.dump_python(
        segment, mode="json", exclude={"ids", "logprobs"}, exclude_defaults=True
    )
    # Pydantic takes an empty mapping for no default.
    for part in (record, *record.get("tool_calls", ())):
        if not part.get("further", True):
            del part["further"]
    if ids:
        record["ids"] = None if segment.ids is None else list(segment.ids)
        scored = segment.by is By.MODEL and segment.logprobs is not None
        record["logprobs"] = list(segment.logprobs or ()) if scored else None
    return record


def _read_call(record: Mapping[str, Any], call_id: str | None) -> Call:
    kept = {name: record.get(name, "") for name in ("tool", "written")}
    request = RunCode(record["source"], call_id=call_id, **kept)
    if record["status"] == "refused":
        return Call(request, Refused(record["reason"]))
    again = record.get("exchanged")
    exchanged = None if again is None else _EXECUTION.validate_python(again)
    return Call(request, _EXECUTION.validate_python(dict(record)), record.get("seed"), exchanged)


def _read_verdict(record: Mapping[str, Any] | None) -> Verdict | None:
    if record is None:
        return None
    # Not validated by type: whole scores are written as integers, and stay integers.
    scores = {int(candidate): score for candidate, score in record["scores"].items()}
    return Verdict(choice=record["choice"], scores=scores, tie=record["tie"])
