"""The host's side of one kernel: its process, the channel to it, and the outputs of its cells."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol, Self

from tirjudge_sandbox.base import Execution, Limits, Program, Status
from tirjudge_sandbox.notebook.cells import CellError, CellRun, CellStatus
from tirjudge_sandbox.notebook.kernel import LENGTH
from tirjudge_sandbox.workers import worker

START_SECONDS = 60.0
"""The longest time from the start of a kernel's process until it is ready."""
GRACE_SECONDS = 5.0
"""The longest time for an interrupted cell to end, and for a kernel to exit when asked to."""
_FINISH_SECONDS = 0.2
"""Wait before an interrupt, for a cell that may be just about to end."""
_REASONS = {
    Status.WALL_LIMIT: "the notebook reached its total time",
    Status.CPU_LIMIT: "it used all of its CPU time",
    Status.MEMORY_LIMIT: "it used all of its memory",
}
_START_BYTES = 1 << 16
"""Output that is kept of a kernel's start, for the reason why it failed."""


class KernelDied(RuntimeError):
    """The kernel's process has ended; the message says how."""


class Workers(Protocol):
    """A sandbox whose programs can be given other standard streams."""

    def run(
        self, program: Program, limits: Limits, *, channel: worker.Channel | None
    ) -> Awaitable[Execution]: ...


class RunningKernel:
    """A program that is a kernel, and the channel to it."""

    def __init__(self, run: asyncio.Task[Execution], channel: Channel, streams: Streams):
        self._run = run
        self._channel = channel
        self._streams = streams
        self._ended: asyncio.Future[Execution] | None = None

    @classmethod
    async def start(cls, workers: Workers, program: Program, limits: Limits, most_bytes: int) -> Self:
        """Wait for a worker, and until the kernel is ready. Raises KernelDied.

        `most_bytes`: the largest message of the kernel that is accepted.
        """
        ours, theirs = socket.socketpair()
        channel = await Channel.over(ours, most_bytes)
        streams = Streams()
        given = worker.Channel(theirs.fileno(), *streams.write_ends)
        run = asyncio.ensure_future(workers.run(program, limits, channel=given))

        def release() -> None:
            # As long as the host holds a copy of the other end, it cannot detect that the kernel closed it.
            theirs.close()
            streams.release()

        run.add_done_callback(lambda _: release())
        kernel = cls(run, channel, streams)
        try:
            await kernel._next("started")
            release()
            async with asyncio.timeout(START_SECONDS):
                await kernel._next("ready")
        except BaseException as error:
            # The program may still be waiting for a worker, where closing the channel would not end it.
            run.cancel()
            await kernel.end()
            if isinstance(error, TimeoutError):
                raise KernelDied(f"it was not ready after {START_SECONDS:.0f} s") from None
            raise
        return kernel

    @property
    def alive(self) -> bool:
        """False once the kernel's process has ended, or is about to because it must not get another cell."""
        return self._ended is None and not self._run.done()

    def begin(self, source: str) -> None:
        """Start a cell; `collect` waits for its end."""
        text = source.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        self._channel.send(run=text, most=self._channel.most_bytes)

    async def collect(self, outputs: Outputs) -> None:
        """Collect the cell's output until it ends or `outputs` is full. Raises KernelDied.

        Whatever ends this, `outputs` has everything that was printed before.
        """
        with self._streams.into(outputs):
            while not outputs.full:
                frame = await self._frame()
                if frame.get("kind") == "end":
                    if frame.get("exit"):
                        # The cell called exit: the kernel is about to end, and must not get another cell.
                        await self.end()
                    return
                try:
                    outputs.add(frame)
                except ChannelBroken as error:
                    raise await self._dead(str(error)) from None

    async def interrupt(self) -> bool:
        """End the cell, or the kernel if that fails; drop further output.

        Return False if the kernel died before the cell ended.
        """
        with contextlib.suppress(TimeoutError):
            # An interrupt that arrives just after the end of a cell could kill the kernel.
            return await self._over(_FINISH_SECONDS)
        self._channel.send(interrupt=True)
        with contextlib.suppress(TimeoutError):
            return await self._over(GRACE_SECONDS)
        await self.end()
        return False

    async def end(self) -> Execution:
        """End the kernel; return its process's execution with the fetched files."""
        if self._ended is None:
            # A task of its own: the kernel ends even if this call is cancelled.
            self._ended = asyncio.ensure_future(self._end())
        return await asyncio.shield(self._ended)

    async def _end(self) -> Execution:
        # The client reads the end of the stream and kills the kernel. Without a client, the worker must.
        self._channel.close()
        done, _ = await asyncio.wait([self._run], timeout=GRACE_SECONDS)
        if not done:
            self._run.cancel()
            await asyncio.wait([self._run])
        self._streams.end()
        if self._run.cancelled():
            return Execution(status=Status.SANDBOX_FAILED, detail="the kernel had to be killed by its worker")
        return self._run.result()

    async def _over(self, seconds: float) -> bool:
        """Wait for the end of the cell; return False if the kernel died before it. Raises TimeoutError."""
        try:
            async with asyncio.timeout(seconds):
                while (frame := await self._frame()).get("kind") != "end":
                    pass
        except KernelDied:
            return False
        if frame.get("exit"):
            await self.end()
        return True

    async def _next(self, kind: str) -> None:
        if (frame := await self._frame()).get("kind") != kind:
            raise await self._dead(f"it sent {frame.get('kind')!r} instead of {kind!r}")

    async def _frame(self) -> dict[str, Any]:
        try:
            frame = await self._channel.receive()
        except ChannelBroken as error:
            raise await self._dead(str(error)) from None
        if frame is None:
            raise await self._dead("")
        return frame

    async def _dead(self, reason: str) -> KernelDied:
        """End the kernel, whose remaining messages the next cell would get, and return how it ended."""
        execution = await self.end()
        return KernelDied(reason or _describe(execution, self._streams.of_start))


def _describe(execution: Execution, of_start: Outputs) -> str:
    if execution.detail:
        return execution.detail
    if execution.status in _REASONS:
        return _REASONS[execution.status]
    if execution.exit_code is None:
        return f"signal {execution.signal} ended it"
    last = of_start.cell(None, 0, restarted=False, detail="").stderr.strip().splitlines()[-1:]
    return ": ".join([f"it ended with exit code {execution.exit_code}", *last])


class Streams:
    """The pipes of a kernel's standard output and standard error; what comes outside of cells is dropped."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.of_start = self._outputs = Outputs(_START_BYTES)
        """The output of the kernel before its first cell."""
        self._loop = asyncio.get_running_loop()
        self._read_ends: dict[int, str] = {}
        self.write_ends: list[int] = []
        """Descriptors for the kernel: standard output, standard error."""
        for name in ("stdout", "stderr"):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            self._read_ends[read_end] = name
            self.write_ends.append(write_end)
            self._loop.add_reader(read_end, self._follow, read_end)

    @contextlib.contextmanager
    def into(self, outputs: Outputs) -> Iterator[None]:
        """Collect what arrives into `outputs`, with all that has arrived at the end of the block."""
        self._outputs = outputs
        try:
            yield
        finally:
            # One read takes all that a pipe can hold, and ends also while a thread of the cell writes.
            for read_end in [*self._read_ends]:
                self._read(read_end)
            self._outputs = Outputs(0)

    def release(self) -> None:
        """Close the host's copies of the write ends."""
        while self.write_ends:
            os.close(self.write_ends.pop())

    def end(self) -> None:
        """Read what is left of a kernel that has ended, and close the pipes."""
        while self._read_ends:
            read_end = next(iter(self._read_ends))
            self._read(read_end)
            self._loop.remove_reader(read_end)
            self._read_ends.pop(read_end)
            os.close(read_end)

    def _follow(self, read_end: int) -> None:
        if not self._read(read_end):
            self._loop.remove_reader(read_end)

    def _read(self, read_end: int) -> bool:
        """Read one chunk. Return False at the end of the stream."""
        try:
            chunk = os.read(read_end, worker.CHUNK)
        except BlockingIOError:
            return True
        self._outputs.write(self._read_ends[read_end], chunk)
        return bool(chunk)


class Outputs:
    """Collects the output of one cell; whatever exceeds the limit is dropped and sets `full`."""

    def __init__(self, most_bytes: int):
        """`most_bytes`: limit for everything together."""
        self.full = False
        self.on_full: Callable[[], object] | None = None
        """Called when a stream exceeds the limit."""
        self._left = most_bytes
        self._streams: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._displays: list[Mapping[str, Any]] = []
        self._error: CellError | None = None

    def write(self, name: str, content: bytes) -> None:
        """Add what was written to the stream `name`."""
        self._streams[name] += content[: self._left]
        if len(content) > self._left and not self.full:
            self.full = True
            if self.on_full is not None:
                self.on_full()
        self._left -= min(self._left, len(content))

    def add(self, frame: Mapping[str, Any]) -> None:
        """Add a frame of kind `display`, `error` or `left_out`.

        Raises ChannelBroken for any other.
        """
        try:
            match frame["kind"]:
                case "display":
                    data = dict(frame["data"])
                    if self._fits(data):
                        self._displays.append(data)
                case "error":
                    self._set_error(frame)
                case "left_out":
                    self.full = True
                case other:
                    raise ValueError(other)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ChannelBroken(f"it sent a malformed message: {error}") from None

    def cell(
        self, status: CellStatus | None, wall_seconds: float, *, restarted: bool, detail: str
    ) -> CellRun:
        """Return the result. `status`: None means the status that the kernel reported."""
        reported = CellStatus.OK if self._error is None else CellStatus.ERROR
        stdout, stderr = (text.decode("utf-8", "replace") for text in self._streams.values())
        return CellRun(
            status=status or reported,
            stdout=stdout,
            stderr=stderr,
            displays=tuple(self._displays),
            error=self._error,
            truncated=self.full,
            restarted=restarted,
            wall_seconds=wall_seconds,
            detail=detail,
        )

    def _set_error(self, frame: Mapping[str, Any]) -> None:
        lines = tuple(map(str, frame["traceback"]))
        error = CellError(name=str(frame["name"]), value=str(frame["value"]), traceback=lines)
        if self._fits([error.name, error.value, lines]):
            self._error = error
        elif self._error is None:
            self._error = CellError(name=error.name[:100], value="", traceback=())

    def _fits(self, data: object) -> bool:
        size = len(json.dumps(data))
        fits = size <= self._left
        self.full |= not fits
        self._left -= size if fits else 0
        return fits


class ChannelBroken(RuntimeError):
    """The other end sent something that a kernel's client never sends."""


class Channel:
    """One end of a socket pair. Cancelling `receive` loses nothing; the next call continues."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_bytes: int):
        self._reader = reader
        self._writer = writer
        self.most_bytes = most_bytes
        """The largest frame that is accepted."""
        self._length: int | None = None

    @classmethod
    async def over(cls, end: socket.socket, most_bytes: int) -> Self:
        """Open a channel over a socket. `most_bytes`: the largest frame that is accepted."""
        return cls(*await asyncio.open_unix_connection(sock=end), most_bytes)

    def send(self, **frame: object) -> None:
        """Send a frame without waiting: a kernel that does not read it reaches a time limit."""
        content = json.dumps(frame).encode()
        self._writer.write(LENGTH.pack(len(content)) + content)

    async def receive(self) -> dict[str, Any] | None:
        """Return the next frame, None at the end. Raises ChannelBroken for anything else."""
        try:
            if self._length is None:
                (self._length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if self._length > self.most_bytes:
                raise ChannelBroken(f"it sent a message of {self._length} bytes")
            content = await self._reader.readexactly(self._length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._length = None
        return _frame(content)

    def close(self) -> None:
        """Close this end."""
        self._writer.close()


def _frame(content: bytes) -> dict[str, Any]:
    try:
        found = _parsed(content)
        if rb"\ud" in content.lower():
            # Lone surrogates become question marks, since they cannot be encoded in a file or an answer.
            found = _parsed(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ChannelBroken(f"it sent a message that cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ChannelBroken("it sent a message that is not an object")
    return found


def _parsed(content: bytes) -> Any:
    return json.loads(content, parse_constant=str, parse_float=_finite)


def _finite(digits: str) -> float | str:
    """Return a finite number; an infinite one as text, since JSON cannot represent it."""
    number = float(digits)
    return number if math.isfinite(number) else digits
