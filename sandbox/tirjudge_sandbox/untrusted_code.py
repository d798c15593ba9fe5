"""Programs that run untrusted code as separate programs, by the module `isolated` (see `guest.isolated`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tirjudge_sandbox.base import Execution, Limits, Program, Sandbox, Status, nested_too_deeply
from tirjudge_sandbox.guest import isolated

_FILE = "isolated.py"
_SOURCE = Path(isolated.__file__).read_bytes()
_SHARE_OF_DISK = 256
"""The outcomes of all isolated programs must fit into the working folder, with up to six bytes for each of
theirs: one program may write this part of the folder's size."""
_TIMES = ("wall_seconds", "cpu_seconds", "queued_seconds")
_DEFAULT_LIMITS = Limits()


async def run_with_isolated(
    sandbox: Sandbox, program: Program, limits: Limits = _DEFAULT_LIMITS, *, depth: int = 2
) -> Execution:
    """Run a program that may `import isolated` and run untrusted code as separate programs.

    Every program runs in the sandbox by itself, one after the other, so this works in every sandbox and needs
    no process of its own. `limits` apply to the program, and its times also to everything that runs for it
    together; so do the times of the result. A program that does not import the module is simply run. With a
    `depth` of 2 an isolated program may run others, which may not. Raises what `Sandbox.run` raises.
    """
    # A rough test is enough: after a false alarm the working folder has two more files.
    imports = any("import" in line and "isolated" in line for line in program.source.splitlines())
    if _FILE in program.files or not imports or not depth:
        return await sandbox.run(program, limits)
    answers: list[tuple[str, tuple[Any, ...]]] = []
    spent = Execution(status=Status.OK)
    while True:
        content = json.dumps(answers).encode()
        files = {**program.files, _FILE: _SOURCE, isolated.ANSWERS: content}
        own = await sandbox.run(replace(program, files=files), _left(limits, spent))
        spent = _added(spent, own)
        request = _request(own) if len(answers) < isolated.MOST else None
        if request is None:
            return replace(own, **_costs(spent))
        if _over(limits, spent) is None:
            asked = json.loads(request)
            bounds = _of_isolated(_left(limits, spent), asked.pop("seconds"))
            other = Program(**asked, seed=program.seed, client=program.client)
            done = await run_with_isolated(sandbox, other, bounds, depth=depth - 1)
            if done.status is Status.SANDBOX_FAILED:
                return done
            spent = _added(spent, done)
            outcome = (done.status.value, done.exit_code, done.stdout, done.stderr)
            answers.append((isolated.digest_of(request), outcome))
        if (over := _over(limits, spent)) is not None:
            printed = own.stderr.rpartition(f"\n{isolated.REQUEST}")[0]
            return replace(own, status=over, exit_code=None, stderr=printed, **_costs(spent))


def _request(execution: Execution) -> str | None:
    """Return the request with which a program ended; None if it ended otherwise."""
    # The time may have been spent while the program ended.
    if execution.exit_code != isolated.REQUEST_CODE:
        return None
    _, start, request = execution.stderr.rpartition(f"\n{isolated.REQUEST}")
    if not start:
        return None
    try:
        fields = json.loads(request)
        well_formed = fields.keys() == {"source", "stdin", "bindings", "seconds"} and (
            isinstance(fields["source"], str)
            and isinstance(fields["stdin"], str)
            and isinstance(fields["bindings"], dict)
            and not nested_too_deeply(fields["bindings"])
            and isinstance(fields["seconds"], int | float)
        )
    except (ValueError, AttributeError, RecursionError):
        return None
    # The module checks this too, but the line may be from the program itself.
    in_time = well_formed and 0 < fields["seconds"] <= isolated.LONGEST_SECONDS
    return request.removesuffix("\n") if in_time else None


def _added(spent: Execution, execution: Execution) -> Execution:
    """Return the costs so far and those of one more execution."""
    times = {name: getattr(execution, name) + getattr(spent, name) for name in _TIMES}
    return replace(spent, **times, max_rss_bytes=max(execution.max_rss_bytes, spent.max_rss_bytes))


def _costs(spent: Execution) -> dict[str, Any]:
    return {name: getattr(spent, name) for name in (*_TIMES, "max_rss_bytes")}


def _left(limits: Limits, spent: Execution) -> Limits:
    return replace(
        limits,
        wall_seconds=limits.wall_seconds - spent.wall_seconds,
        cpu_seconds=limits.cpu_seconds - spent.cpu_seconds,
    )


def _over(limits: Limits, spent: Execution) -> Status | None:
    """Return the time limit that programs have reached together; None if there is time left."""
    if spent.wall_seconds >= limits.wall_seconds:
        return Status.WALL_LIMIT
    return Status.CPU_LIMIT if spent.cpu_seconds >= limits.cpu_seconds else None


def _of_isolated(left: Limits, seconds: float) -> Limits:
    return replace(
        left,
        wall_seconds=min(isolated.WALL * seconds, left.wall_seconds),
        cpu_seconds=min(seconds, left.cpu_seconds),
        output_bytes=min(left.output_bytes, max(1, left.disk_bytes // _SHARE_OF_DISK)),
    )
