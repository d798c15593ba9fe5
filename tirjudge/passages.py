"""Passages: a trajectory as a person reads it, told apart into reasoning, programs and their outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from tirjudge.records import call_record
from tirjudge_environments import By, Call, Segment, Trajectory
from tirjudge_environments.parsing import Turn

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
