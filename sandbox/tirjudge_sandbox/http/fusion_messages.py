"""SandboxFusion's route `/run_code`, as its client 0.3.7 defines them."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from tirjudge_sandbox.base import MIB, Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.http.fields import (
    Content,
    Files,
    Message,
    Paths,
    Request,
    Seconds,
    decoded,
    encoded,
    one_line,
)

PYTHON = "python"
Language = Literal[
    "python", "python2", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket", "gtest", "react",
]  # fmt: skip

_WRAPPER = """\
def _tirjudge():
    import io, json, linecache, random, resource, sys, traceback

    # Without buffers, whose content would be lost when the program is killed.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        encoding, errors = stream.encoding, stream.errors
        raw = io.FileIO(stream.fileno(), "w", closefd=False)
        stream.detach()
        stream = io.TextIOWrapper(raw, encoding, errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, "__" + name + "__", stream)

    given = json.loads({given!r})
    source, file = given["source"], "<program>"

    def show(kind, error, trace):
        # Drops the frames of this wrapper.
        sys.stderr.write("".join(traceback.format_exception(kind, error, trace.tb_next.tb_next)))

    sys.excepthook = show
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (given["cpu"], given["cpu"] + 1))
    except (OSError, ValueError):
        pass
    random.seed(given["seed"])
    names = globals()
    del names["_tirjudge"]
    names.update(given["bindings"])
    exec(compile(source, file, "exec", dont_inherit=True), names)


_tirjudge()
"""
"""The source of a program for a server that takes nothing but a source."""

UNKNOWN = Isolation(
    placement="sandbox-fusion",
    host_files_hidden=False,
    network_cut=False,
    processes_contained=False,
    calls_filtered=False,
    notes=("a SandboxFusion server does not say how it isolates programs",),
)
"""The isolation assumed for SandboxFusion."""

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


class RunCodeRequest(Request):
    """One program."""

    code: str
    language: Language
    compile_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10
    """Seconds. Accepted and ignored: nothing is compiled for Python."""
    run_timeout: Seconds = 10
    """Seconds of wall time, and of CPU time."""
    memory_limit_MB: Annotated[int, Field(ge=-1, le=1 << 30)] = -1
    """MiB; -1 and 0 mean the server's default."""
    stdin: str | None = None
    files: Files = Field(default_factory=dict)
    fetch_files: Paths = ()

    def program(self, client: str) -> Program:
        """Return the program to run. `client`: the name under which it queues."""
        return Program(
            source=self.code, stdin=self.stdin or "", files=self.files, fetch=self.fetch_files, client=client
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
    files: dict[str, Content] = Field(default_factory=dict)
    """Maps a path to its content, for those of `fetch_files` that exist."""

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
            files=dict(execution.files),
        )

    @classmethod
    def failed(cls, reason: str) -> RunCodeResponse:
        """Return the answer for a failure of the sandbox, not of the program."""
        result = CommandResult(status=CommandStatus.ERROR, stderr=reason)
        return cls(status=RunStatus.SANDBOX_ERROR, message=reason, run_result=result)


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


def to_request(program: Program, limits: Limits) -> dict[str, Any]:
    """Return the JSON of a request for a server that takes nothing but a source."""
    return {
        "code": _wrapped(program, limits),
        "language": PYTHON,
        "run_timeout": limits.wall_seconds,
        # Rounded up, so that no program gets less memory than its limit.
        "memory_limit_MB": -(-limits.memory_bytes // MIB),
        "stdin": program.stdin,
        "files": encoded(program.files),
        "fetch_files": program.fetch,
    }


def _wrapped(program: Program, limits: Limits) -> str:
    """Return a source that runs the program with its bindings, seed and CPU limit.

    Tracebacks name `<program>` and show no frame of the wrapper. The hash seed and numpy's seed stay the
    server's.
    """
    given = {
        "source": program.source,
        "bindings": dict(program.bindings),
        "seed": program.seed,
        "cpu": math.ceil(limits.cpu_seconds),
    }
    return _WRAPPER.format(given=json.dumps(given))


def to_execution(body: bytes, limits: Limits) -> Execution:
    """Read an answer. Raises ValueError if it is malformed."""
    try:
        answer = RunCodeResponse.model_validate_json(body)
    except ValidationError as error:
        raise ValueError(one_line(error)) from None
    result = answer.run_result
    if answer.status is RunStatus.SANDBOX_ERROR or result is None:
        return Execution(status=Status.SANDBOX_FAILED, detail=answer.message or "no reason given")
    # SandboxFusion has no output limit, so the limit is applied here.
    stdout, stderr = _cut(result.stdout or "", result.stderr or "", limits.output_bytes)
    kept = _size(stdout, stderr)
    cut = _size(result.stdout or "", result.stderr or "") - kept
    code = result.return_code
    return Execution(
        status=Status.OUTPUT_LIMIT if cut else _status(result),
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stdout=stdout,
        stderr=stderr,
        truncated=cut > 0,
        kept_bytes=kept,
        cut_bytes=cut,
        wall_seconds=result.execution_time or 0.0,
        cpu_seconds=result.cpu_time or 0.0,
        files={path: decoded(content) for path, content in answer.files.items()},
        isolation=UNKNOWN,
    )


def _status(result: CommandResult) -> Status:
    if result.status is CommandStatus.TIME_LIMIT:
        return Status.WALL_LIMIT
    code = result.return_code
    if result.status is CommandStatus.ERROR or code is None:
        return Status.SANDBOX_FAILED
    if code == -signal.SIGXCPU:
        # RLIMIT_CPU, which the wrapper sets.
        return Status.CPU_LIMIT
    if code < 0:
        return Status.SIGNAL
    return Status.ERROR if code else Status.OK


def _size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def _cut(stdout: str, stderr: str, most: int) -> tuple[str, str]:
    out, err = stdout.encode(), stderr.encode()
    # Standard output takes precedence, since the order of writes is not known.
    out, err = out[:most], err[: max(0, most - len(out))]
    return out.decode("utf-8", "ignore"), err.decode("utf-8", "ignore")
