"""Conversion of a teacher's dialogue to the student's format, by replaying it in the student's session."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from tirjudge_environments import (
    Budget,
    By,
    Completion,
    Environment,
    Finish,
    JudgeSession,
    JudgeTask,
    Segment,
    StopReason,
    Trajectory,
)
from tirjudge_environments.parsing import Turn
from tirjudge_environments.programs.recording import ReplaySandbox
from tirjudge_sandbox import Execution

Reasoning = Literal["drop", "keep"]

_UNBOUNDED = 1 << 30
"""A token budget without effect: SFT refuses samples that are too long for the student."""


async def convert_dialogue(
    trajectory: Trajectory, environment: Environment, task: JudgeTask, *, reasoning: Reasoning = "drop"
) -> Trajectory:
    """Return the dialogue as `environment` would have recorded it, with its programs' recorded outcomes.

    Native calls become fenced programs, one per turn, and their outputs the text that the student is shown;
    hidden reasoning is dropped, or written before the text of its turn. No program is run, and the result has
    no token ids. If the conversion would change a program (a fence inside its text, a draft before the call),
    the result stops as SANDBOX_DOWN and is therefore Unscored.
    """
    turns = list(_turns(trajectory, reasoning))
    # Refused programs come after all others and are refused again: the sandbox replays those that ran.
    ran = [
        (call.request.source, call.outcome)
        for call in trajectory.calls
        if isinstance(call.outcome, Execution)
    ]
    sandbox = ReplaySandbox([execution for _, execution in ran], sources=[source for source, _ in ran])
    session = JudgeSession(
        environment,
        task,
        trajectory.view,
        sandbox,
        # A budget for exactly this dialogue, so that no limit of the student's cuts it short.
        budget=Budget(turns=len(turns) + 1, tool_calls=len(ran), tokens=_UNBOUNDED),
        sample=trajectory.sample,
    )
    for number, text in enumerate(turns, 1):
        if session.done:
            break
        await session.step(Completion(text=text, finish=Finish.END if number == len(turns) else Finish.STOP))
    if not session.done:
        # The teacher stopped without a verdict, which the student must not learn.
        session.fail(StopReason.MALFORMED, "the dialogue ends without a verdict")
    return session.trajectory


def _turns(trajectory: Trajectory, reasoning: Reasoning) -> Iterator[str]:
    """Yield what the model wrote in each turn, with one turn per program."""
    calls = deque(trajectory.calls)
    for segment in trajectory.segments:
        if segment.by is By.SANDBOX:
            continue
        thought = segment.reasoning.strip() if reasoning == "keep" else ""
        text = f"{thought}\n\n{segment.text.lstrip()}" if thought else segment.text
        sources = [calls.popleft().request.source for _ in range(min(_requested(segment), len(calls)))]
        if segment.tool_calls:
            yield from _fenced(text, sources)
        else:
            # The newline after a closing fence belongs to the model's turn, so the student must learn it.
            yield text if not sources or text.endswith(("\n", "output")) else f"{text}\n"


def _requested(segment: Segment) -> int:
    """Return the number of programs that a turn requested."""
    return len(segment.tool_calls) or int(Turn(segment.text).program is not None)


def _fenced(text: str, sources: Iterable[str]) -> Iterator[str]:
    """Yield one turn per program; the text of the turn comes before the first one."""
    lead = f"{text.rstrip()}\n" if text.strip() else ""
    for source in sources:
        body = source.rstrip("\n")
        yield f"{lead}```python\n{body}\n```\n"
        lead = ""
