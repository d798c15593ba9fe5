"""A notebook: run cells one after the other in a kernel, within limits of time and output."""

from __future__ import annotations

import asyncio
import math
from typing import Self

from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable
from tirjudge_sandbox.notebook.cells import CellRun, CellStatus, NotebookLimits
from tirjudge_sandbox.notebook.running_kernel import (
    GRACE_SECONDS,
    KernelDied,
    Outputs,
    RunningKernel,
    Workers,
)

_KERNEL_PROCESSES = 24
"""Threads of the kernel and its client."""
_KERNEL_BYTES = 128 << 20
"""Address space of the kernel and its client."""
_ESCAPED = 6
"""The most bytes of JSON for one byte of output."""
_FRAME_BYTES = 1 << 20
"""Allowance for the part of a frame around the output."""


class Notebook:
    """A notebook, for use with `async with`. Cells run one at a time, in the order of the calls.

    Limits are enforced from outside of the kernel. See `CellRun.by` for who reports the status of a cell.
    """

    def __init__(self, workers: Workers, program: Program, limits: NotebookLimits):
        self._workers = workers
        self._program = program
        self._limits = limits
        self._turn = asyncio.Lock()
        self._kernel: RunningKernel | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._expired = ""
        self._ended: asyncio.Future[Execution] | None = None
        self._until = 0.0

    async def __aenter__(self) -> Self:
        """Wait for a place, and start the kernel. Raises SandboxUnavailable if it does not start."""
        try:
            self._kernel = await self._started(self._limits.total_seconds)
        except KernelDied as error:
            raise SandboxUnavailable(f"the notebook's kernel did not start: {error}") from error
        self._until = self._now() + self._limits.total_seconds
        self._arm("total", self._limits.total_seconds)
        self._arm("idle", self._limits.idle_seconds)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the notebook."""
        await self.close()

    @property
    def open(self) -> bool:
        """False once the notebook was closed, by a caller or by a limit."""
        return self._ended is None

    async def run(self, source: str, wall_seconds: float | None = None) -> CellRun:
        """Run one cell. Never raises for what the cell does; cancelling stops the cell first.

        `wall_seconds`: None means `NotebookLimits.cell_seconds`. If the kernel has died, a new one is started
        first, and `CellRun.restarted` is True. Raises ValueError for a time that is not positive and finite,
        RuntimeError when closed.
        """
        seconds = self._limits.cell_seconds if wall_seconds is None else wall_seconds
        if not 0 < seconds < math.inf:
            raise ValueError(f"wall_seconds must be positive and finite, not {seconds}")
        async with self._turn:
            if self._expired:
                return CellRun(status=CellStatus.CLOSED, detail=self._expired)
            if self._kernel is None or not self.open:
                raise RuntimeError("the notebook is not open: use it inside `async with`")
            self._timers["idle"].cancel()
            try:
                return await self._run(source, seconds)
            finally:
                self._arm("idle", self._limits.idle_seconds)

    async def close(self) -> Execution:
        """End the kernel; return its process's execution (signal 9 if it was killed) and fetched files."""
        if self._kernel is None:
            raise RuntimeError("the notebook was never opened")
        return await asyncio.shield(self._end(self._kernel))

    async def _run(self, source: str, seconds: float) -> CellRun:
        assert self._kernel is not None
        restarted = not self._kernel.alive
        if restarted:
            try:
                self._kernel = await self._started(self._until - self._now())
            except KernelDied as error:
                detail = f"no new kernel could be started: {error}"
                return CellRun(status=CellStatus.SANDBOX_FAILED, detail=detail)
            if not self.open:
                # It was closed meanwhile, which ended only the kernel before.
                await self._kernel.end()
                detail = self._expired or "the notebook was closed before a new kernel had started"
                return CellRun(status=CellStatus.CLOSED, detail=detail)
        started = self._now()
        outputs = Outputs(self._limits.output_bytes)
        status, detail = await self._execute(self._kernel, source, outputs, seconds)
        return outputs.cell(status, self._now() - started, restarted=restarted, detail=detail)

    async def _execute(
        self, kernel: RunningKernel, source: str, outputs: Outputs, seconds: float
    ) -> tuple[CellStatus | None, str]:
        """Run a cell.

        Return the status and detail that the sandbox reports; None if the kernel's report counts.
        """
        kernel.begin(source)
        try:
            async with asyncio.timeout(seconds) as deadline:
                outputs.on_full = lambda: deadline.reschedule(self._now())
                await kernel.collect(outputs)
            if not outputs.full:
                return None, ""
        except TimeoutError:
            status, detail = CellStatus.TIME_LIMIT, f"stopped after {seconds:g} s"
        except KernelDied as error:
            if self._expired:
                return CellStatus.TIME_LIMIT, self._expired
            return CellStatus.KERNEL_DIED, str(error)
        except asyncio.CancelledError:
            await asyncio.shield(kernel.interrupt())
            raise
        finally:
            outputs.on_full = None
        if outputs.full:
            status = CellStatus.OUTPUT_LIMIT
            detail = f"stopped at {self._limits.output_bytes} bytes of output"
        if not await kernel.interrupt():
            detail += ", and the kernel with it, since it did not react to an interrupt"
        return status, detail

    async def _started(self, seconds: float) -> RunningKernel:
        limits = self._limits
        return await RunningKernel.start(
            self._workers,
            self._program,
            Limits(
                # A backup: the notebook's own timer ends the kernel first.
                wall_seconds=max(seconds, 0) + GRACE_SECONDS,
                cpu_seconds=limits.cpu_seconds,
                memory_bytes=limits.memory_bytes + _KERNEL_BYTES,
                processes=limits.processes + _KERNEL_PROCESSES,
                disk_bytes=limits.disk_bytes,
            ),
            _ESCAPED * limits.output_bytes + _FRAME_BYTES,
        )

    def _arm(self, name: str, seconds: float) -> None:
        if self.open:
            reason = {"idle": "it was idle for", "total": "it reached its total time of"}[name]
            self._timers[name] = asyncio.get_running_loop().call_later(
                seconds, self._expire, f"the notebook was closed: {reason} {seconds:g} s"
            )

    def _expire(self, reason: str) -> None:
        assert self._kernel is not None
        self._expired = reason
        self._end(self._kernel)

    def _end(self, kernel: RunningKernel) -> asyncio.Future[Execution]:
        """Begin to end the kernel, once."""
        for timer in self._timers.values():
            timer.cancel()
        if self._ended is None:
            self._ended = asyncio.ensure_future(kernel.end())
        return self._ended

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
