"""Checks: calls of somebody's function that decides one response, each in a run of the sandbox of its own.

No state is left between two calls: neither an interpreter nor a file or an output. What the function prints
is no result: the outcome follows a key that is drawn for the call. Code of the response that the function
itself executes is part of the call, and can do whatever the function can: `isolated` runs it elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirjudge_environments.types import derive_seed
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status, run_with_isolated

_LIMITS = Limits(wall_seconds=15.0, cpu_seconds=1.0, output_bytes=1 << 16)
_ATTEMPTS = 2
_LONGEST_FAULT = 200
_HARNESS = """
import io, json, os, sys


def decide(key, name, arguments, values):
    space = {"__name__": "checker"}
    sys.stdout = sys.stderr = io.StringIO()
    try:
        exec(compile(source, "<checker>", "exec"), space)
        found, fault = space[name](*arguments, **values), ""
        if found is not None and found is not True and found is not False:
            found, fault = None, f"it returned {type(found).__name__}, and not True, False or None"
    except BaseException as error:
        found, fault = None, f"{type(error).__name__}: {error}"[:200]
    os.write(1, f"\\n{key}{json.dumps([found, fault])}".encode())
    os._exit(0)


decide(**globals().pop("call"))
"""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The finding of a check."""

    passed: bool | None
    """None if the function abstained or failed."""
    fault: str = ""
    """Why the function failed, in one line of untrusted text; empty if it did not."""
    down: str = ""
    """Why the sandbox failed, which says nothing about the function; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Check:
    """A call of a function that returns True, False, or None to abstain."""

    source: str
    """Python that defines the function."""
    arguments: Sequence[Any]
    """JSON values, the response among them."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Arguments by their names."""
    name: str = "check"

    async def outcome(self, sandbox: Sandbox) -> CheckOutcome:
        """Run the check by itself; a failed sandbox is asked once more."""
        key = secrets.token_hex(16)
        call = {"key": key, "name": self.name, "arguments": list(self.arguments), "values": dict(self.values)}
        # The source is a part of the program, in which `run_with_isolated` looks for the module's name.
        program = Program(f"source = {self.source!r}\n{_HARNESS}", bindings={"call": call})
        for _ in range(_ATTEMPTS):
            execution = await run_with_isolated(sandbox, program, _LIMITS)
            if execution.status is not Status.SANDBOX_FAILED:
                return _outcome(execution, key)
        return CheckOutcome(None, down=execution.detail or "the sandbox failed")


async def outcomes(sandbox: Sandbox, checks: Sequence[Check], *, seed: int = 0) -> list[CheckOutcome]:
    """Run checks, which start in an order that the seed draws; return the outcome of each."""
    order = list(range(len(checks)))
    random.Random(derive_seed(seed, *map(repr, checks))).shuffle(order)
    found = await asyncio.gather(*(checks[place].outcome(sandbox) for place in order))
    return [outcome for _, outcome in sorted(zip(order, found, strict=True), key=lambda one: one[0])]


def _outcome(execution: Execution, key: str) -> CheckOutcome:
    """Return the outcome behind the key; the program may have found the key, and then printed anything."""
    if execution.status is not Status.OK:
        return CheckOutcome(None, f"it ended with {execution.status.value}")
    try:
        passed, fault = json.loads(execution.stdout.partition(f"\n{key}")[2])
    except (TypeError, ValueError, RecursionError):
        return CheckOutcome(None, "it ended without a result")
    if not isinstance(passed, bool | None) or not isinstance(fault, str):
        return CheckOutcome(None, "it ended without a result")
    return CheckOutcome(passed, " ".join(fault.split())[:_LONGEST_FAULT])
