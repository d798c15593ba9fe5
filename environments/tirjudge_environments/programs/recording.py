"""A sandbox that records the executions of another one, and a sandbox that replays recorded executions."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status
from tirjudge_sandbox.base import OthersSandbox


class RecordingSandbox(OthersSandbox):
    """A recorder of an inner sandbox's executions; the owner opens and closes the inner sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.capacity = sandbox.capacity
        self.executions: list[Execution] = []
        """In the order of the requests, failed and retried requests included."""

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        execution = await self._sandbox.run(program, limits)
        self.executions.append(execution)
        return execution


class ReplaySandbox(OthersSandbox):
    """A sandbox that runs nothing and returns recorded executions in order.

    A program that the recording does not have at this point is SANDBOX_FAILED, with the reason in `detail`:
    a dialogue that departs from its recording ends without a score.
    """

    capacity = 1

    def __init__(
        self,
        executions: Iterable[Execution],
        *,
        sources: Iterable[str] | None = None,
        repeat_last: bool = False,
    ) -> None:
        """Replay these executions.

        Args:
            executions: the recorded executions, in the order of the requests.
            sources: the source of each recorded program, compared without surrounding white space. Without
                sources, the executions are returned whatever programs are requested.
            repeat_last: return the last execution again for every request after it, instead of failing.

        Raises ValueError if the numbers of executions and sources differ.
        """
        self._executions = tuple(executions)
        self._sources = None if sources is None else [source.strip() for source in sources]
        if self._sources is not None and len(self._sources) != len(self._executions):
            raise ValueError(
                f"{len(self._executions)} executions need as many sources, not {len(self._sources)}"
            )
        self._repeat_last = repeat_last
        self._returned = 0
        self.programs: list[Program] = []
        """The programs that were requested, in order."""
        self.limits: list[Limits] = []
        """The limits that were requested, one per program."""

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        self.programs.append(program)
        self.limits.append(limits)
        position = self._returned
        if self._repeat_last:
            position = min(position, len(self._executions) - 1)
        if not 0 <= position < len(self._executions):
            return _failed("the recording has no further execution")
        # An execution of another program is not consumed: the session retries a failed sandbox, and the retry
        # must fail as well.
        if self._sources is not None and self._sources[position] != program.source.strip():
            return _failed("the recording has the execution of another program at this point")
        self._returned += 1
        return self._executions[position]


def _failed(detail: str) -> Execution:
    return Execution(status=Status.SANDBOX_FAILED, detail=detail)
