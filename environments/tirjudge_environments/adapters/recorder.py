"""A sandbox that remembers its executions, so that a dialogue can be played again and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tirjudge_sandbox import Execution, Limits, Program, Sandbox


class Recorder:
    """Passes programs on, to a sandbox that somebody else opens and closes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.capacity = sandbox.capacity
        self.executions: list[Execution] = []
        """In the order asked for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        execution = await self._sandbox.run(program, limits)
        self.executions.append(execution)
        return execution


class Recording:
    """Runs nothing: gives the executions of a Recorder, in order; asking for more is an IndexError."""

    capacity = 1

    def __init__(self, executions: Sequence[Execution]) -> None:
        self._left = list(executions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        return self._left.pop(0)
