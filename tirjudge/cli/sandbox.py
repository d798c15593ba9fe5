"""`tirjudge sandbox`: run programs, serve them over HTTP, and examine this machine."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table

from tirjudge.cli.listening import (
    GRACE,
    AllowHost,
    Grace,
    Host,
    MaxBody,
    PerCaller,
    Port,
    Queue,
    intake_limits,
    open_listening,
    read_access,
    token_file_option,
    url_of,
)
from tirjudge.cli.output import (
    NO_SANDBOX,
    USAGE,
    add_command,
    assigned,
    command_group,
    examples,
    no_sandbox,
    option,
    say,
    stop,
)
from tirjudge.console_text import printable
from tirjudge_sandbox import (
    Execution,
    ImportPolicy,
    Isolation,
    Limits,
    Program,
    SandboxUnavailable,
    Status,
    open_sandbox,
)
from tirjudge_sandbox.base import MIB, read_limits
from tirjudge_sandbox.containers import client, image
from tirjudge_sandbox.doctor import LOCAL, Finding, examine, lacking
from tirjudge_sandbox.server.lifetime import serve as serve_sandbox
from tirjudge_sandbox.server.settings import BODY_BYTES, MOST, ServerSettings
from tirjudge_sandbox.workers.host import Host as Machine
from tirjudge_sandbox.workers.pool import PooledSandbox

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


ProgramLimit = Annotated[
    list[str] | None,
    option(
        "Sandbox",
        f"A limit of the program: {', '.join(Limits.__slots__)}. Repeatable.",
        "--program-limit",
        metavar="LIMIT=NUMBER",
    ),
]


Prepare = Annotated[
    str,
    option(
        "Sandbox",
        "A trusted program, or a folder with __main__.py and data, whose names all programs find.",
        "--prepare",
        metavar="FILE",
    ),
]


BackendOption = Annotated[
    list[str] | None,
    option(
        "Sandbox",
        "An option of the sandbox, such as prepare_memory_bytes=2e9. Repeatable.",
        "--backend-option",
        metavar="KEY=VALUE",
    ),
]


@examples(
    "echo 'print(6 * 7)' | tirjudge sandbox run -",
    "tirjudge sandbox run program.py --timeout 5 --import-policy",
)
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Python program; - reads it from standard input.")
    ],
    timeout: Annotated[
        float | None, option("Sandbox", "Wall and CPU time.  [default: 20 wall, 10 CPU]", metavar="SECONDS")
    ] = None,
    program_limit: ProgramLimit = None,
    stdin: Annotated[
        Path | None,
        option("Sandbox", "File that the program reads as standard input.", "--input", metavar="FILE"),
    ] = None,
    import_policy: Annotated[
        bool,
        option("Sandbox", "Refuse imports that judging does not need, with a reason.", "--import-policy"),
    ] = False,
    allowed: Annotated[
        list[str] | None,
        option(
            "Sandbox",
            "Allow this module too, with --import-policy. Repeatable.",
            "--allow-import",
            metavar="MODULE",
        ),
    ] = None,
    prepare: Prepare = "",
    backend_option: BackendOption = None,
    allow_weak_isolation: Annotated[
        bool,
        option(
            "Sandbox",
            "Run the program even where this machine cannot isolate it fully.",
            "--allow-weak-isolation",
        ),
    ] = False,
) -> None:
    """Run one program and pass on its output and exit code.

    Exit codes: the program's own up to 122, which also stands for larger ones, so that none of these can be
    feigned: 123 at the output or memory limit, 124 at a time limit, 125 when there is no sandbox or it
    failed, 128 + N when signal N ended the program. 2 for wrong usage, which a program can feign.
    """
    if timeout is not None and not timeout > 0:
        stop("sandbox", f"--timeout must be positive, not {timeout:g}", USAGE)
    limits = Limits() if timeout is None else Limits(wall_seconds=timeout, cpu_seconds=timeout)
    limits = _limits("--program-limit", program_limit, limits)
    program = Program(source=_text(file), stdin=_text(str(stdin)) if stdin else "")
    try:
        options = _options(
            backend_option,
            capacity=1,
            import_policy=_policy(import_policy, allowed or ()),
            allow_weak_isolation=allow_weak_isolation,
            prepare=prepare or None,
        )
        execution = asyncio.run(_execution(program, limits, options))
    except ValueError as error:
        stop("sandbox", error, USAGE)
    except SandboxUnavailable as error:
        no_sandbox("sandbox", error)
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
        no_sandbox("sandbox", error)
    _say(f"{'built' if built else 'already built:'} {image.TAG} {found}")


def _limits(flag: str, given: Sequence[str] | None, usual: Limits) -> Limits:
    try:
        return read_limits(assigned(flag, given or ()), usual)
    except ValueError as error:
        stop("sandbox", error, USAGE)


def _policy(wanted: bool, allowed: Sequence[str]) -> ImportPolicy | None:
    if allowed and not wanted:
        stop("sandbox", "--allow-import requires --import-policy", USAGE)
    try:
        return ImportPolicy().allowing(*allowed) if wanted else None
    except ValueError as error:
        stop("sandbox", error, USAGE)


def _options(given: Sequence[str] | None, **own: Any) -> dict[str, Any]:
    """Return the options of a sandbox. Raises ValueError for an option that the command sets itself."""
    options = assigned("--backend-option", given or ())
    for name in own:
        if name in options:
            raise ValueError(f"--backend-option {name}: this command sets {name} itself")
    return {**options, **own}


async def _execution(program: Program, limits: Limits, options: Mapping[str, Any]) -> Execution:
    async with open_sandbox("local", **options) as box:
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


TOKEN = "TIRJUDGE_SANDBOX_TOKEN"


@examples("tirjudge sandbox serve", "tirjudge sandbox serve --backend docker --capacity 8")
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    backend: Annotated[
        str, option("Sandbox", "Sandbox: local, docker, or another that is installed.", metavar="NAME")
    ] = "local",
    capacity: Annotated[
        int | None, option("Sandbox", "Programs at once.  [default: one per CPU]", min=1)
    ] = None,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    queue: Queue = 256,
    per_caller: PerCaller = None,
    max_seconds: Annotated[
        float, option("Sandbox", "Longest time that a request may ask for.", min=0.1)
    ] = MOST.wall_seconds,
    max_memory: Annotated[
        int, option("Sandbox", "Most memory that a request may ask for.", min=1, metavar="MIB")
    ] = MOST.memory_bytes // MIB,
    max_limit: Annotated[
        list[str] | None,
        option(
            "Sandbox",
            f"Largest limit that a request may ask for: {', '.join(Limits.__slots__)}. Repeatable.",
            "--max-limit",
            metavar="LIMIT=NUMBER",
        ),
    ] = None,
    max_body: MaxBody = BODY_BYTES // MIB,
    grace: Grace = GRACE,
    prepare: Prepare = "",
    backend_option: BackendOption = None,
    allow_weak_isolation: Annotated[
        bool,
        option("Sandbox", "Serve even where programs cannot be isolated fully.", "--allow-weak-isolation"),
    ] = False,
) -> None:
    """Serve the sandbox over HTTP: SandboxFusion's /run_code, /v1/run, and /metrics.

    SIGTERM or Ctrl-C finishes accepted requests within --grace; Ctrl-C again ends at once. Exit code 125 when
    there is no sandbox here, 2 for wrong usage and for an address that is not available.
    """
    if not math.isfinite(max_seconds):
        # JSON, in which the server reports its limits, has no such number.
        stop("sandbox", f"--max-seconds must be finite, not {max_seconds}", USAGE)
    most = replace(MOST, wall_seconds=max_seconds, cpu_seconds=max_seconds, memory_bytes=max_memory * MIB)
    most = _limits("--max-limit", max_limit, most)
    try:
        settings = ServerSettings(
            access=read_access(TOKEN, token_file, allow_host),
            intake=intake_limits(queue, max_body, per_caller, grace),
            most=most,
        )
        own = {"capacity": capacity, "allow_weak_isolation": allow_weak_isolation, "prepare": prepare or None}
        options = _options(backend_option, **own)
        if not prepare:
            # Not every sandbox has this option.
            del options["prepare"]
        with open_listening(host, port, settings.access, TOKEN) as listening:
            asyncio.run(_serving(backend, options, listening, settings))
    except ValueError as error:
        stop("sandbox", error, USAGE)
    except SandboxUnavailable as error:
        no_sandbox("sandbox", error)


async def _serving(
    backend: str, options: Mapping[str, Any], listening: socket.socket, settings: ServerSettings
) -> None:
    box = open_sandbox(backend, **options)
    if isinstance(box, PooledSandbox):
        # Otherwise a caller could have the workers replaced all the time, by ever other sizes.
        box.share_folders(settings.most)
    async with box:

        def started(isolation: Isolation) -> None:
            weak = f", WITHOUT {', '.join(isolation.missing)}" if isolation.missing else ""
            where = f"{url_of(listening)} runs {box.capacity} programs at once in `{isolation.placement}`"
            say(f"tirjudge sandbox: {where}{weak}")

        await serve_sandbox(box, listening, settings, started)
    say("tirjudge sandbox: ended")


UNSOUND = 1

_PROPERTIES = tuple(field.name for field in fields(Isolation) if field.name not in ("placement", "notes"))


@examples("tirjudge sandbox doctor", "tirjudge sandbox doctor || echo not isolated")
def doctor(
    as_json: Annotated[bool, option("Output", "Print the findings as JSON.", "--json")] = False,
) -> None:
    """Try every sandbox on this machine and report which isolation properties hold.

    Exit code 0 when the local sandbox isolates programs fully, 1 when it does not.
    """
    machine = Machine.read()
    findings = asyncio.run(_findings())
    chosen = next((one for one in findings if one.backend == LOCAL and one.sound), None)
    if as_json:
        print(json.dumps(_record(machine, findings, chosen), indent=2))
        raise typer.Exit(0 if chosen else UNSOUND)
    console = Console(soft_wrap=True)
    console.print(_description(machine), highlight=False)
    console.print(_table(findings))
    for one in findings:
        if one.reason:
            print(f"{_name(one)}: {printable(one.reason, limit=1000)}")
    for line in _preparing(findings):
        print(line)
    if chosen is not None:
        console.print(f"The local sandbox runs programs in `{chosen.placement}`. {lacking(chosen.placement)}")
        return
    console.print("The local sandbox refuses to run programs here. Remedies:")
    for advice in machine.advice():
        console.print(f"- {advice}", highlight=False)
    raise typer.Exit(UNSOUND)


async def _findings() -> list[Finding]:
    return [finding async for finding in examine()]


def _record(machine: Machine, findings: Sequence[Finding], chosen: Finding | None) -> dict[str, object]:
    return {
        "machine": _description(machine),
        "local": chosen.placement if chosen else None,
        "sandboxes": [
            {
                "sandbox": one.backend,
                "placement": one.placement,
                "isolation": asdict(one.isolation) if one.isolation else None,
                "sound": one.sound,
                "reason": one.reason,
                "prepares": one.prepares,
            }
            for one in findings
        ],
        "remedies": [] if chosen else list(machine.advice()),
    }


def _description(machine: Machine) -> str:
    user = "root" if machine.uid == 0 else f"uid {machine.uid}"
    parts = [
        f"Linux {machine.kernel} on {machine.architecture}",
        f"{user} with{'' if machine.sys_admin else 'out'} CAP_SYS_ADMIN",
        f"Landlock {machine.landlock}" if machine.landlock else "no Landlock",
    ]
    if machine.filtered:
        parts.append("under a system call filter")
    if machine.gvisor:
        parts.append("in gVisor")
    return ", ".join(parts)


def _name(finding: Finding) -> str:
    return f"{finding.backend} {finding.placement}".strip()


def _preparing(findings: Sequence[Finding]) -> list[str]:
    """Return how often each sandbox that works runs a prepared program."""
    where: dict[str, list[str]] = {}
    for one in findings:
        if one.isolation is not None:
            where.setdefault(one.prepares, []).append(_name(one))
    return [
        f"A prepared program (--prepare) runs {often}: {', '.join(names)}" for often, names in where.items()
    ]


def _table(findings: Sequence[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("sandbox", "placement", *(name.replace("_", " ") for name in _PROPERTIES)):
        table.add_column(column)
    for one in findings:
        found = one.isolation
        marks = ("-" if found is None else "yes" if getattr(found, name) else "NO" for name in _PROPERTIES)
        table.add_row(one.backend, one.placement or "-", *marks)
    return table


sandbox = command_group(
    "Run programs in the sandbox.", "tirjudge sandbox run program.py", "tirjudge sandbox doctor"
)
for _command in (run, build, serve, doctor):
    add_command(sandbox, _command)
