"""The programs behind a verdict, as the HTTP and MCP servers return them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from tirjudge.judgment import Judgment
from tirjudge_environments.outputs import output_text
from tirjudge_environments.types import Refused
from tirjudge_sandbox import Status

_LONGEST_OUTPUT = 2000


class JudgedProgram(BaseModel):
    """A program that the judge ran, and the output that it was shown."""

    model_config = ConfigDict(frozen=True)

    source: str
    output: str


def judged_programs(judgment: Judgment) -> tuple[JudgedProgram, ...]:
    """Return the programs of all trajectories, in order."""
    calls = [call for one in judgment.trajectories for call in one.calls]
    return tuple(JudgedProgram(source=call.request.source, output=_output(call.outcome)) for call in calls)


def _output(outcome: Any) -> str:
    if not isinstance(outcome, Refused) and outcome.status is Status.SANDBOX_FAILED:
        return ""
    return output_text(outcome, _LONGEST_OUTPUT)
