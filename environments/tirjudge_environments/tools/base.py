"""The interface of a tool, and the settings of the tools that a judge may call besides Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tirjudge_environments.types import ToolSpec
from tirjudge_sandbox import Execution, Limits, SandboxUnavailable
from tirjudge_sandbox.base import MIB

CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names under which a judge can call a tool: what a chat API accepts, and what fits into a fence."""
RESERVED = frozenset({"python", "output", "run_python"})
"""Names that mean something else to a judge."""


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

        `bindings` are the prompt and the responses of the view as JSON values. The text is in `stdout`, or
        after a failure in `stderr`, and `status` says how the call ended: OK; ERROR, which the tool reports;
        a limit; or SANDBOX_FAILED, which says nothing about the call and is never shown to a judge.
        """
        ...


class ToolSettings(BaseModel):
    """The tools that a judge may call besides Python, and their limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    servers: tuple[str, ...] = ()
    """MCP servers: `mcp:COMMAND` starts a program that speaks over standard input and output, in the
    environment of this process; `http://...` and `https://...` are URLs."""
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
            if not server.startswith(("http://", "https://")) and not server.removeprefix("mcp:").strip():
                raise ValueError(f"{server!r} has no command: write mcp:COMMAND, or a URL")
            if not server.startswith(("http://", "https://", "mcp:")):
                raise ValueError(f"{server!r} is no tool: write mcp:COMMAND, or a URL")
        return servers

    @property
    def limits(self) -> Limits:
        return Limits(wall_seconds=self.wall_seconds, output_bytes=self.output_bytes)
