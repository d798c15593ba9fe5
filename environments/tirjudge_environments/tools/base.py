"""The interface of a tool, and the settings of the tools that a judge may call besides Python."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tirjudge_environments.types import FrozenModel, ToolSpec
from tirjudge_sandbox import Execution, Limits, SandboxUnavailable, Status
from tirjudge_sandbox.base import MIB

CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names under which a judge can call a tool: valid in a chat API and in a fence."""
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

    @property
    def limits(self) -> Limits:
        """The bounds of one call. A tool that runs on another machine keeps time and output alone."""

    async def call(
        self, arguments: Mapping[str, Any], *, bindings: Mapping[str, Any] | None = None, seed: int = 0
    ) -> Execution:
        """Call the tool, and never raise for what it does; cancelling stops the call.

        `bindings` are the variables of a program; for every other tool `responses`, those of the view in its
        order, as JSON values, and `files`, their folders if they have any. The text is in `stdout`, or after
        a failure in `stderr`, and `status` says how the call ended: OK; ERROR, which the tool reports; a
        limit; or SANDBOX_FAILED, which says nothing about the call and is never shown to a judge.
        """


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


class ToolSettings(FrozenModel):
    """The tools that a judge may call besides Python, and their limits."""

    servers: tuple[str, ...] = ()
    """`tests` offers `run_tests`. All others are MCP servers: `mcp:COMMAND` starts a program that speaks over
    standard input and output, in the environment of this process; `http://...` and `https://...` are URLs."""
    allowed: tuple[str, ...] = ()
    """Names of the only tools that the judge may call; empty allows all tools of the servers."""
    authorization: Mapping[str, str] = Field(default_factory=dict)
    """The host of a URL to the name of an environment variable. Its value is sent to this host alone, as the
    header `Authorization`."""
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

    @model_validator(mode="after")
    def _hosts_are_known(self) -> Self:
        hosts = {urlsplit(server).hostname for server in self.servers}
        if any("@" in urlsplit(server).netloc for server in self.servers):
            raise ValueError("a URL of a tool holds a password, which is recorded: use `authorization`")
        for host in self.authorization:
            if host not in hosts:
                raise ValueError(f"there is an authorization for {host}, and no tool at this host")
        return self

    def authorization_for(self, address: str) -> str:
        """Return the header `Authorization` for a server; empty if it gets none.

        Raises ToolUnavailable, without the value, for a variable that is not set or that can be no header.
        """
        variable = self.authorization.get(urlsplit(address).hostname or "")
        if variable is None:
            return ""
        value = os.environ.get(variable, "").strip()
        if not value or not value.isascii() or not value.isprintable():
            raise ToolUnavailable(f"--tool {address}: the variable {variable} holds no header")
        return value

    @property
    def limits(self) -> Limits:
        return Limits(wall_seconds=self.wall_seconds, output_bytes=self.output_bytes)
