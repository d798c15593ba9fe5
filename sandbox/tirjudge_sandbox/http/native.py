"""The project's own messages (`/v1/run`, `/v1/info`): every field of Program, Limits and Execution."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from tirjudge_sandbox.base import Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.http.fields import Base64, Bindings, Files, Message, Paths, Seconds, Text, given

Positive = Annotated[int, Field(gt=0, le=1 << 62)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]

_PIECE = 3 << 16
"""Bytes that are encoded at once; divisible by 3, so that base64 has no padding between pieces."""

NAME = "tirjudge"
"""Value of `Info.server`, by which a client recognises this server."""


class LimitsMessage(Message):
    """See `tirjudge_sandbox.base.Limits`."""

    wall_seconds: Seconds = Limits().wall_seconds
    cpu_seconds: Seconds = Limits().cpu_seconds
    memory_bytes: Positive = Limits().memory_bytes
    threads: Count = Limits().threads
    processes: Count = Limits().processes
    output_bytes: Positive = Limits().output_bytes
    disk_bytes: Positive = Limits().disk_bytes

    @classmethod
    def of(cls, limits: Limits) -> LimitsMessage:
        """Convert limits to a message."""
        return cls(**{name: getattr(limits, name) for name in Limits.__slots__})

    def limits(self, defaults: Limits) -> Limits:
        """Return `defaults`, overridden by what the request sets."""
        return replace(defaults, **self.model_dump(exclude_unset=True))


class RunRequest(Message):
    """One program; see `tirjudge_sandbox.base.Program`."""

    source: Text
    bindings: Bindings = Field(default_factory=dict)
    stdin: Text = ""
    files: Files = Field(default_factory=dict)
    fetch: Paths = ()
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = 0
    client: Text = ""
    """Any name: while programs of a caller wait, its names take turns. Callers, told apart by token or
    address, take turns first."""
    limits: LimitsMessage = LimitsMessage()

    def program(self, client: str) -> Program:
        """Return the program to run. `client`: the caller, without a slash."""
        return Program(
            source=self.source,
            bindings=self.bindings,
            stdin=self.stdin,
            files=given(self.files),
            fetch=tuple(dict.fromkeys(self.fetch)),
            seed=self.seed,
            client=f"{client}/{self.client}" if self.client else client,
        )


class IsolationMessage(Message):
    """See `tirjudge_sandbox.base.Isolation`."""

    placement: str
    host_files_hidden: bool
    network_cut: bool
    processes_contained: bool
    calls_filtered: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, isolation: Isolation) -> IsolationMessage:
        """Convert an isolation to a message."""
        return cls(**{name: getattr(isolation, name) for name in Isolation.__slots__})

    def isolation(self) -> Isolation:
        """Convert the message back."""
        return Isolation(**dict(self))


class RunResponse(Message):
    """The result of one program; see `tirjudge_sandbox.base.Execution`."""

    status: Status
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    truncated: bool
    kept_bytes: Count = 0
    cut_bytes: Count = 0
    wall_seconds: float
    cpu_seconds: float
    queued_seconds: float
    max_rss_bytes: int
    files: dict[str, Base64]
    isolation: IsolationMessage | None
    detail: str

    @classmethod
    def of(cls, execution: Execution) -> RunResponse:
        """Convert an execution to a message, without validating it again."""
        values: dict[str, Any] = {name: getattr(execution, name) for name in Execution.__slots__}
        if execution.isolation is not None:
            values["isolation"] = IsolationMessage.of(execution.isolation)
        return cls.model_construct(**values)

    def to_json(self) -> bytes:
        """Return the message as JSON.

        Files are encoded piece by piece, so that other threads can run during the encoding of large ones.
        """
        parts = [self.model_dump_json(exclude={"files"}).encode()[:-1], b',"files":{']
        for number, (path, content) in enumerate(self.files.items()):
            parts.append(f'{"," if number else ""}{json.dumps(path)}:"'.encode())
            for start in range(0, len(content), _PIECE):
                parts.append(base64.b64encode(content[start : start + _PIECE]))
            parts.append(b'"')
        return b"".join([*parts, b"}}"])

    def execution(self) -> Execution:
        """Convert the message back."""
        isolation = None if self.isolation is None else self.isolation.isolation()
        return Execution(**{**dict(self), "isolation": isolation})


class Info(Message):
    """The properties of a server. SandboxFusion's server has no such route."""

    server: str
    version: str
    capacity: Annotated[int, Field(gt=0)]
    """The most programs that it runs at once."""
    isolation: IsolationMessage | None
    most: LimitsMessage
    """The largest limits that a program may request."""
