"""The time spent waiting for programs alone, while no token was computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tirjudge_sandbox import Execution, Limits, Program, Sandbox


class WaitedSandbox:
    """A sandbox wrapper with a clock that runs while programs run and the generator does not."""

    def __init__(self, sandbox: Sandbox, generating: Callable[[], float]) -> None:
        """`generating` returns the seconds that the generator has worked, the current call included."""
        self._sandbox, self._generating = sandbox, generating
        self.capacity = sandbox.capacity
        self.seconds = 0.0
        """Waiting time in wall seconds, up to the last moment at which no program ran or queued."""
        self._running = 0
        self._since = 0.0

    async def __aenter__(self) -> Self:
        self._sandbox = await self._sandbox.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sandbox.__aexit__(kind, error, trace)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        # Concurrent programs count once: the clock runs from the first start to the last end.
        if not self._running:
            self._since = self._idle()
        self._running += 1
        try:
            return await self._sandbox.run(program, limits)
        finally:
            self._running -= 1
            if not self._running:
                # Not below 0: the two clocks are not read at the same instant.
                self.seconds += max(0.0, self._idle() - self._since)

    def _idle(self) -> float:
        """Return a time that does not advance while the generator works."""
        return time.perf_counter() - self._generating()
