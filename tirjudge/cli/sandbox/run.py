"""`tirjudge sandbox run`, which runs one program as a judge does, and `build`, which builds the image."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from tirjudge.cli.output import NO_SANDBOX, USAGE, examples, say, stop
from tirjudge_sandbox import (
    Execution,
    ImportPolicy,
    Limits,
    Program,
    SandboxUnavailable,
    Status,
    open_sandbox,
)
from tirjudge_sandbox.containers import client, image

_LONGEST_BUILD_STEP = 1800
"""Seconds without any message from the engine."""

LARGEST_OWN, TOO_MUCH, TIME_LIMIT, SIGNALLED = 122, 123, 124, 128
"""Exit codes. A program's own are passed on up to the first one, so that it cannot feign the others."""

_ENDINGS = {
    Status.WALL_LIMIT: (TIME_LIMIT, "stopped at the limit of {wall_seconds:g} s"),
    Status.CPU_LIMIT: (TIME_LIMIT, "stopped at the limit of {cpu_seconds:g} s of CPU time"),
    Status.OUTPUT_LIMIT: (
        TOO_MUCH,
        "stopped at the limit of {output_bytes} bytes of output; {cut_bytes} were cut",
    ),
    Status.MEMORY_LIMIT: (TOO_MUCH, "stopped at the memory limit"),
}


@examples(
    "echo 'print(6 * 7)' | tirjudge sandbox run -",
    "tirjudge sandbox run program.py --timeout 5 --import-policy",
)
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Python program; - reads it from standard input.")
    ],
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Wall and CPU time.  [default: 20 wall, 10 CPU]",
            rich_help_panel="Sandbox",
        ),
    ] = None,
    stdin: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="File that the program reads as standard input.",
            rich_help_panel="Sandbox",
        ),
    ] = None,
    import_policy: Annotated[
        bool,
        typer.Option(
            "--import-policy",
            help="Refuse imports that judging does not need, with a reason.",
            rich_help_panel="Sandbox",
        ),
    ] = False,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-import",
            metavar="MODULE",
            help="Allow this module too, with --import-policy. Repeatable.",
            rich_help_panel="Sandbox",
        ),
    ] = None,
    allow_weak_isolation: Annotated[
        bool,
        typer.Option(
            "--allow-weak-isolation",
            help="Run the program even where this machine cannot isolate it fully.",
            rich_help_panel="Sandbox",
        ),
    ] = False,
) -> None:
    """Run one program and pass on its output and exit code.

    Exit codes: the program's own up to 122, which also stands for larger ones, so that none of these can be
    feigned: 123 at the output or memory limit, 124 at a time limit, 125 when there is no sandbox or it
    failed, 128 + N when signal N ended the program. 2 for wrong usage.
    """
    if timeout is not None and not timeout > 0:
        stop("sandbox", f"--timeout must be positive, not {timeout:g}", USAGE)
    limits = Limits() if timeout is None else Limits(wall_seconds=timeout, cpu_seconds=timeout)
    program = Program(source=_text(file), stdin=_text(str(stdin)) if stdin else "")
    try:
        options = {
            "import_policy": _policy(import_policy, allowed or ()),
            "allow_weak_isolation": allow_weak_isolation,
        }
        execution = asyncio.run(_execution(program, limits, options))
    except SandboxUnavailable as error:
        stop("sandbox", error, NO_SANDBOX)
    _show(execution.stdout, sys.stdout)
    _show(execution.stderr, sys.stderr)
    raise typer.Exit(_exit_code(execution, limits))


@examples("tirjudge sandbox build", "DOCKER_HOST=ssh://user@host tirjudge sandbox build")
def build() -> None:
    """Build the image of the docker sandbox, unless the Docker engine already has this version.

    DOCKER_HOST selects the engine. Exit code 125 when it cannot be reached or the build fails.
    """
    try:
        found, built = client.call(lambda docker: image.build(docker, _say), _LONGEST_BUILD_STEP)
    except (client.EngineFailed, SandboxUnavailable) as error:
        stop("sandbox", error, NO_SANDBOX)
    _say(f"{'built' if built else 'already built:'} {image.TAG} {found}")


def _policy(wanted: bool, allowed: Sequence[str]) -> ImportPolicy | None:
    if allowed and not wanted:
        stop("sandbox", "--allow-import requires --import-policy", USAGE)
    try:
        return ImportPolicy().allowing(*allowed) if wanted else None
    except ValueError as error:
        stop("sandbox", error, USAGE)


async def _execution(program: Program, limits: Limits, options: Mapping[str, Any]) -> Execution:
    async with open_sandbox("local", capacity=1, **options) as box:
        return await box.run(program, limits)


def _exit_code(execution: Execution, limits: Limits) -> int:
    isolation = execution.isolation
    if isolation is not None and isolation.missing:
        _say(f"weak isolation ({isolation.placement}): {'; '.join(isolation.notes)}")
    if execution.status is Status.SANDBOX_FAILED:
        stop("sandbox", f"the sandbox failed: {execution.detail}", NO_SANDBOX)
    if execution.status in _ENDINGS:
        code, text = _ENDINGS[execution.status]
        values = {name: getattr(limits, name) for name in limits.__slots__}
        stop("sandbox", text.format(**values, cut_bytes=execution.cut_bytes), code)
    if execution.exit_code is not None:
        if execution.exit_code > LARGEST_OWN:
            _say(f"the program's exit code {execution.exit_code} is passed on as {LARGEST_OWN}")
        return min(execution.exit_code, LARGEST_OWN)
    number = execution.signal or 0
    _say(f"ended by signal {number}")
    return SIGNALLED + number


def _text(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        stop("sandbox", f"{file}: {error.strerror}", USAGE)
    # Keep bytes that are not UTF-8: Python's compiler reports them best.
    return content.decode("utf-8", "surrogateescape")


def _show(text: str, stream: TextIO) -> None:
    if stream.isatty():
        text = "".join(
            mark if mark.isprintable() or mark in "\n\t" else mark.encode("unicode_escape").decode()
            for mark in text
        )
    stream.buffer.write(text.encode("utf-8", "surrogateescape"))
    stream.flush()


def _say(text: str) -> None:
    say(f"tirjudge sandbox: {text}")
