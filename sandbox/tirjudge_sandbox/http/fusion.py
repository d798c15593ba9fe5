"""SandboxFusion's requests and answers (`/run_code`, `/run_jupyter`), as its client 0.3.7 defines them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from tirjudge_sandbox.base import MIB, Execution, Limits, Program, Status
from tirjudge_sandbox.http.fields import Files, Message, Paths, Seconds, Text, given

PYTHON = "python"
Language = Literal[
    "python", "python2", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket", "gtest", "react",
]  # fmt: skip

_KILLED = -9


class RunStatus(StrEnum):
    """The status of a whole request."""

    SUCCESS = "Success"
    FAILED = "Failed"
    """The program failed."""
    SANDBOX_ERROR = "SandboxError"
    """The sandbox failed; SandboxFusion's client retries."""


class CommandStatus(StrEnum):
    """The status of one process."""

    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT = "TimeLimitExceeded"


class CommandResult(Message):
    """The result of one process."""

    status: CommandStatus
    execution_time: float | None = None
    """Seconds of wall time."""
    cpu_time: float | None = None
    return_code: int | None = None
    """A negative number is the signal that ended the process. None at a time limit."""
    stdout: str | None = None
    stderr: str | None = None


class RunCodeRequest(Message):
    """One program."""

    code: Text
    language: Language
    compile_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10
    """Seconds. Accepted and ignored: nothing is compiled for Python."""
    run_timeout: Seconds = 10
    """Seconds of wall time, and of CPU time."""
    memory_limit_MB: Annotated[int, Field(ge=-1, le=1 << 30)] = -1
    """MiB; -1 and 0 mean the server's default."""
    stdin: Text | None = None
    files: Files = Field(default_factory=dict)
    fetch_files: Paths = ()

    def program(self, client: str) -> Program:
        """Return the program to run. `client`: the name under which it queues."""
        return Program(
            source=self.code,
            stdin=self.stdin or "",
            files=given(self.files),
            fetch=tuple(dict.fromkeys(self.fetch_files)),
            client=client,
        )

    def limits(self, defaults: Limits) -> Limits:
        """Return `defaults`, overridden by what the request sets."""
        seconds = self.run_timeout
        if "run_timeout" not in self.model_fields_set:
            # A default above the operator's limit is no mistake of the caller.
            seconds = min(seconds, defaults.wall_seconds)
        limits = replace(defaults, wall_seconds=seconds, cpu_seconds=seconds)
        if self.memory_limit_MB > 0:
            limits = replace(limits, memory_bytes=self.memory_limit_MB * MIB)
        return limits


class RunCodeResponse(Message):
    """The result of one program."""

    status: RunStatus
    message: str = ""
    """The reason where the streams do not show it: a limit other than time, or a failure of the sandbox."""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)
    """Maps a path to base64, for those of `fetch_files` that exist."""

    @classmethod
    def of(cls, execution: Execution, limits: Limits) -> RunCodeResponse:
        """Convert an execution.

        SandboxFusion has no status for limits other than time, so `message` names them.
        """
        if execution.status is Status.SANDBOX_FAILED:
            return cls.failed(execution.detail)
        return cls(
            status=RunStatus.SUCCESS if execution.status is Status.OK else RunStatus.FAILED,
            message=_LIMITS.get(execution.status, "").format(limits, execution),
            run_result=_command(execution),
            files=encoded(execution.files),
        )

    @classmethod
    def failed(cls, reason: str) -> RunCodeResponse:
        """Return the answer for a failure of the sandbox, not of the program."""
        result = CommandResult(status=CommandStatus.ERROR, stderr=reason)
        return cls(status=RunStatus.SANDBOX_ERROR, message=reason, run_result=result)


class RunJupyterRequest(Message):
    """Cells that run one after another in one kernel."""

    cells: Annotated[tuple[Text, ...], Field(max_length=1000)]
    cell_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    """Seconds that each cell may take; 0 means no limit per cell."""
    total_timeout: Seconds = 45
    memory_limit_MB: Annotated[int, Field(ge=-1, le=1 << 30)] = -1
    kernel: Literal["python3"] = "python3"
    files: Files = Field(default_factory=dict)
    fetch_files: Paths = ()


class CellResult(Message):
    """The result of one cell."""

    stdout: str = ""
    stderr: str = ""
    display: list[dict[str, Any]] = Field(default_factory=list)
    """MIME bundles, each mapping a type to data."""
    error: list[dict[str, Any]] = Field(default_factory=list)
    """At most one, with `ename`, `evalue` and `traceback`."""


class RunJupyterResponse(Message):
    """The results of the cells of one request."""

    status: RunStatus
    message: str = ""
    driver: CommandResult | None = None
    cells: list[CellResult] = Field(default_factory=list)
    """The cells that were run."""
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def failed(cls, reason: str) -> RunJupyterResponse:
        """Return the answer for a failure of the sandbox, not of a cell."""
        driver = CommandResult(status=CommandStatus.ERROR, stderr=reason)
        return cls(status=RunStatus.SANDBOX_ERROR, message=reason, driver=driver)


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return files with their content in base64."""
    return {path: base64.b64encode(content).decode() for path, content in files.items()}


_LIMITS = {
    Status.OUTPUT_LIMIT: "stopped at the limit of {0.output_bytes} bytes of output; {1.cut_bytes} were cut",
    Status.MEMORY_LIMIT: "stopped at the limit of {0.memory_bytes} bytes of memory",
    Status.CPU_LIMIT: "stopped at the limit of {0.cpu_seconds:g} s of CPU time",
}


def _command(execution: Execution) -> CommandResult:
    timed_out = execution.status in (Status.WALL_LIMIT, Status.CPU_LIMIT)
    return CommandResult(
        status=CommandStatus.TIME_LIMIT if timed_out else CommandStatus.FINISHED,
        execution_time=execution.wall_seconds,
        cpu_time=execution.cpu_seconds,
        return_code=None if timed_out else _return_code(execution),
        stdout=execution.stdout,
        stderr=execution.stderr,
    )


def _return_code(execution: Execution) -> int:
    if execution.status in (Status.OUTPUT_LIMIT, Status.MEMORY_LIMIT):
        # Its own exit code may be 0 if it ended at the same moment, which must not look like success.
        return _KILLED
    return -execution.signal if execution.signal else execution.exit_code or 0
