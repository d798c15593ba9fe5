"""Checkers run in the sandbox: the rows that wait for one checker go into one program, in milliseconds a row.

Each row has a namespace of its own, so that no row sees another one. If a program fails as a whole, its rows
run again one by one, and the row that fails then is one on which the checker abstains. Different checkers
never share a program.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirjudge_environments.checkers.file import Checker
from tirjudge_environments.checkers.rules import Value
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status

MOST_ROWS = 128
"""Rows of one program."""
_MOST_CHARACTERS = 1 << 20
"""Characters of one program's rows, from which on no further row joins."""
_WAIT = 0.002
"""Seconds for which the first row of a checker waits for others."""
_ATTEMPTS = 2
_LIMITS = Limits(wall_seconds=60.0, cpu_seconds=5.0, output_bytes=1 << 17)
_ALONE = Limits(wall_seconds=15.0, cpu_seconds=1.0, output_bytes=1 << 16)
HARNESS = """
import contextlib, io, json, random, time


def outcome(code, response, prompt, values):
    random.seed(0)
    space, begun = {"__name__": "checker"}, time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(code, space)
            found = space["check"](response, prompt, **values)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    # Alone, the row would have been ended.
    if time.process_time() - begun > seconds:
        return "it ended with cpu_limit"
    if found is None or found is True or found is False:
        return found
    return f"it returned {type(found).__name__}, and not True, False or None"


code = compile(source, "<checker>", "exec")
print(json.dumps([outcome(code, *row) for row in rows]))
"""


class CheckersDown(RuntimeError):
    """The sandbox failed, which says nothing about a checker; the message is one line."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The finding of a checker in one response."""

    passed: bool | None
    """None if it abstained or failed."""
    fault: str = ""
    """Why it failed, in one line of untrusted text; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Case:
    """One response for a checker."""

    response: str
    prompt: Any
    """The conversation as JSON values, see `messages.conversation_data`."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values of the rule's fields."""


def program_of(checker: Checker, case: Case) -> Program:
    """Return the program that runs a checker on one response, for a record that others can run again."""
    values = "".join(f", {name}={value!r}" for name, value in case.values.items())
    source = f"{checker.source}\n\nprint(check(response, prompt{values}))\n"
    return Program(source, bindings={"response": case.response, "prompt": case.prompt})


class CheckerRunner:
    """Runs checkers in an open sandbox; belongs to one event loop."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._waiting: dict[str, list[tuple[Case, asyncio.Future[Outcome]]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, checker: Checker, cases: Sequence[Case]) -> list[Outcome]:
        """Return the outcome of each case, together with those of other callers.

        Raises CheckersDown if the sandbox fails.
        """
        loop, key = asyncio.get_running_loop(), checker.digest
        futures = [loop.create_future() for _ in cases]
        waiting = self._waiting.setdefault(key, [])
        waiting += zip(cases, futures, strict=True)
        if waiting and key not in self._running:
            self._running[key] = loop.create_task(self._drain(key, checker))
        return list(await asyncio.gather(*futures))

    async def _drain(self, key: str, checker: Checker) -> None:
        """Run programs until no row of the checker waits."""
        await asyncio.sleep(_WAIT)
        waiting = self._waiting[key]
        while waiting:
            batch, size = list[tuple[Case, asyncio.Future[Outcome]]](), 0
            while waiting and len(batch) < MOST_ROWS and size < _MOST_CHARACTERS:
                batch.append(waiting.pop(0))
                size += len(batch[-1][0].response)
            try:
                found = await self._outcomes(checker, [case for case, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(batch, found, strict=True):
                if not future.done():
                    future.set_result(outcome)
        # In the same step as the last look: a row that comes later starts another task.
        del self._waiting[key], self._running[key]

    async def _outcomes(self, checker: Checker, cases: Sequence[Case]) -> list[Outcome]:
        execution = await self._executed(checker, cases, _LIMITS if len(cases) > 1 else _ALONE)
        found = _read(execution, len(cases))
        if found is not None:
            return found
        if len(cases) == 1:
            return [Outcome(None, _fault(execution))]
        # However many of them fail: what a checker finds in a row may not depend on the rows beside it.
        alone = await asyncio.gather(
            *(self._outcomes(checker, [case]) for case in cases), return_exceptions=True
        )
        outcomes = list[Outcome]()
        for one in alone:
            if isinstance(one, BaseException):
                raise one
            outcomes += one
        return outcomes

    async def _executed(self, checker: Checker, cases: Sequence[Case], limits: Limits) -> Execution:
        rows = [[case.response, case.prompt, dict(case.values)] for case in cases]
        bindings = {"source": checker.source, "rows": rows, "seconds": _ALONE.cpu_seconds}
        program = Program(HARNESS, bindings=bindings)
        for _ in range(_ATTEMPTS):
            execution = await self._sandbox.run(program, limits)
            if execution.status is not Status.SANDBOX_FAILED:
                return execution
        raise CheckersDown(execution.detail or "the sandbox failed")


def _read(execution: Execution, count: int) -> list[Outcome] | None:
    """Return the outcomes that a program printed; None if it did not end well, or printed something else."""
    if execution.status is not Status.OK:
        return None
    try:
        found = json.loads(execution.stdout)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != count:
        return None
    if not all(one is None or isinstance(one, bool | str) for one in found):
        return None
    return [Outcome(None, one) if isinstance(one, str) else Outcome(one) for one in found]


def _fault(execution: Execution) -> str:
    if execution.status is Status.OK:
        return "it printed something in place of its result"
    return (execution.stderr.strip().splitlines() or [f"it ended with {execution.status.value}"])[-1][:200]
