"""The interface of a tool, and the settings of the tools that a judge may call besides Python."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tirjudge_environments.types import ToolSpec
from tirjudge_sandbox import Execution, Limits, SandboxUnavailable, Status
from tirjudge_sandbox.base import MIB

CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names under which a judge can call a tool: what a chat API accepts, and what fits into a fence."""
RESERVED = frozenset({"python", "output", "run_python", "run_tests"})
"""Names of tools that no server may give to its own."""
TESTS = "tests"
"""The address of the tool `run_tests` (see `code_tests`)."""


class ToolUnavailable(SandboxUnavailable):
    """The server of a tool cannot be started or reached, or lacks a tool; one line says why."""


class Tool(Protocol):
    """A tool that a judge may call during a dialogue. Every call is independent of every other."""

    @property
    def spec(self) -> ToolSpec:
        """The name, the description and the JSON schema of the arguments, as the judge is shown them."""
        ...

    @property
    def limits(self) -> Limits:
        """The bounds of one call. A tool that runs on another machine keeps time and output alone."""
        ...

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        """Call the tool, and never raise for what it does; cancelling stops the call.

        `bindings` are the variables of a program; for every other tool `responses`, those of the view in its
        order, as JSON values. The text is in `stdout`, or after a failure in `stderr`, and `status` says how
        the call ended: OK; ERROR, which the tool reports; a limit; or SANDBOX_FAILED, which says nothing
        about the call and is never shown to a judge.
        """
        ...


async def called(
    tool: Tool, arguments: str, *, bindings: Mapping[str, Any] | None = None, seed: int = 0
) -> Execution:
    """Call a tool with the text that a judge wrote as its arguments, see `Tool.call`; never raises."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):  # deeply nested JSON exceeds the recursion limit
        found = None
    if not isinstance(found, dict):
        return Execution(status=Status.ERROR, stderr="ValueError: the arguments are not a JSON object")
    return await tool.call(found, bindings=bindings, seed=seed)


class ToolSettings(BaseModel):
    """The tools that a judge may call besides Python, and their limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: tuple[str, ...] = ()
    """`tests` offers `run_tests`. All others are MCP servers: `mcp:COMMAND` starts a program that speaks over
    standard input and output, in the environment of this process; `http://...` and `https://...` are URLs."""
    allowed: tuple[str, ...] = ()
    """Names of the only tools that the judge may call; empty allows all tools of the servers."""
    wall_seconds: float = Field(default=20.0, gt=0, allow_inf_nan=False)
    """Time of one call."""
    output_bytes: int = Field(default=MIB, ge=1)
    """Size of one answer; a longer one is a failure of the call."""

    @field_validator("servers")
    @classmethod
    def _are_addresses(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        for server in servers:
            if server == TESTS:
                continue
            if not server.startswith(("http://", "https://")) and not server.removeprefix("mcp:").strip():
                raise ValueError(f"{server!r} has no command: write mcp:COMMAND or a URL")
            if not server.startswith(("http://", "https://", "mcp:")):
                raise ValueError(f"{server!r} is no tool: write tests, mcp:COMMAND or a URL")
        return servers

    @property
    def limits(self) -> Limits:
        return Limits(wall_seconds=self.wall_seconds, output_bytes=self.output_bytes)
