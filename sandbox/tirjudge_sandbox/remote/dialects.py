"""The two protocols for running a program on a server: this project's own and SandboxFusion's."""

from __future__ import annotations

import base64
import binascii
import json
import math
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tirjudge_sandbox.base import MIB, Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.http import fusion, native

_WRAPPER = """\
def _tirjudge():
    import json, linecache, random, resource, sys, traceback

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


@dataclass(frozen=True)
class Dialect:
    """One protocol: the path, how to make a request, and how to read an answer."""

    path: str
    request: Callable[[Program, Limits], dict[str, Any]]
    """Makes the JSON of a request, lone surrogates included. Raises TypeError for bindings that are not
    JSON."""
    execution: Callable[[bytes, Limits], Execution]
    """Reads an answer. Raises ValueError if it is malformed."""


UNKNOWN = Isolation(
    placement="sandbox-fusion",
    host_files_hidden=False,
    network_cut=False,
    processes_contained=False,
    calls_filtered=False,
    notes=("a SandboxFusion server does not say how it isolates programs",),
)
"""The isolation assumed for SandboxFusion."""


def _native_request(program: Program, limits: Limits) -> dict[str, Any]:
    # model_construct skips the validation: the server validates, and reports what it refuses.
    return native.RunRequest.model_construct(
        source=program.source,
        bindings=dict(program.bindings),
        stdin=program.stdin,
        files=dict(program.files),
        fetch=program.fetch,
        seed=program.seed,
        client=program.client,
        limits=native.LimitsMessage.of(limits),
    ).model_dump(warnings=False)


def _native_execution(body: bytes, _: Limits) -> Execution:
    return native.RunResponse.model_validate_json(body).execution()


def _fusion_request(program: Program, limits: Limits) -> dict[str, Any]:
    return fusion.RunCodeRequest.model_construct(
        code=_wrapped(program, limits),
        language=fusion.PYTHON,
        run_timeout=limits.wall_seconds,
        # Rounded up, so that no program gets less memory than its limit.
        memory_limit_MB=-(-limits.memory_bytes // MIB),
        stdin=program.stdin,
        files=dict(program.files),
        fetch_files=program.fetch,
    ).model_dump(warnings=False)


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


def _fusion_execution(body: bytes, limits: Limits) -> Execution:
    answer = fusion.RunCodeResponse.model_validate_json(body)
    result = answer.run_result
    if answer.status is fusion.RunStatus.SANDBOX_ERROR or result is None:
        return Execution(status=Status.SANDBOX_FAILED, detail=answer.message or "no reason given")
    # SandboxFusion has no output limit, so the limit is applied here.
    stdout, stderr = _cut(result.stdout or "", result.stderr or "", limits.output_bytes)
    kept = _size(stdout, stderr)
    cut = _size(result.stdout or "", result.stderr or "") - kept
    code = result.return_code
    return Execution(
        status=Status.OUTPUT_LIMIT if cut else _fusion_status(result),
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        stdout=stdout,
        stderr=stderr,
        truncated=cut > 0,
        kept_bytes=kept,
        cut_bytes=cut,
        wall_seconds=result.execution_time or 0.0,
        cpu_seconds=result.cpu_time or 0.0,
        files=_decoded(answer.files),
        isolation=UNKNOWN,
    )


def _fusion_status(result: fusion.CommandResult) -> Status:
    if result.status is fusion.CommandStatus.TIME_LIMIT:
        return Status.WALL_LIMIT
    code = result.return_code
    if result.status is fusion.CommandStatus.ERROR or code is None:
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


def _decoded(files: dict[str, str]) -> dict[str, bytes]:
    try:
        return {path: base64.b64decode(content, validate=True) for path, content in files.items()}
    except binascii.Error as error:
        raise ValueError(f"files that are not base64: {error}") from None


NATIVE = Dialect(path="/v1/run", request=_native_request, execution=_native_execution)
FUSION = Dialect(path="/run_code", request=_fusion_request, execution=_fusion_execution)
