"""The host's side of one worker: send it one program at a time, watch over it, kill it."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import termios
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from tirjudge_sandbox.base import Execution, Isolation, Limits, Program, Status, has_large_files
from tirjudge_sandbox.guest import scratch, wire
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.prepared import Prepared
from tirjudge_sandbox.workers.memory_group import MemoryGroup

START_SECONDS = 60.0
"""The longest time that a worker may take until it is warm."""
_GRACE_SECONDS = 5.0
"""Delay after which the host enforces the wall limit too: by then the supervisor itself hangs."""
CHUNK = 65536
"""Bytes read at once from a program's output, which are all that a pipe holds."""
_LITTLE, _PAUSE_SECONDS = 4096, 0.002
"""After so few bytes the host reads on only after a pause: a program that prints single lines would otherwise
wake the host for each of them."""


class Channel(NamedTuple):
    """Descriptors that become the standard streams of a program."""

    stdin: int
    stdout: int
    stderr: int


class WorkerFailed(RuntimeError):
    """A worker did not start, or was lost while a program ran."""


class PreparedFailed(WorkerFailed):
    """The prepared program failed; no other worker would do better."""


async def send_prepared(control: socket.socket, prepared: Prepared) -> None:
    """Send the prepared program to a worker that starts. Raises OSError."""
    payload = await _sealed(prepared.program)
    try:
        socket.send_fds(control, [wire.PREPARE], [payload])
    finally:
        os.close(payload)


async def until_ready(
    control: socket.socket, prepared: Prepared | None, on_supervisor: Callable[[int], None] | None = None
) -> dict[str, bool] | None:
    """Wait until a worker is warm; return the properties that it measured, None if it ended without a word.

    `on_supervisor` gets the id of the supervisor's process. Raises WorkerFailed, PreparedFailed.
    """
    running = None
    try:
        async with asyncio.timeout(START_SECONDS) as deadline:
            while (report := await receive_report(control)) is not None:
                if "unprepared" in report and prepared is not None:
                    raise PreparedFailed(f"{prepared.name}: {report['unprepared']}")
                if "preparing" in report and prepared is not None:
                    running = prepared
                    deadline.reschedule(asyncio.get_running_loop().time() + prepared.seconds)
                if "supervisor" in report and on_supervisor is not None:
                    on_supervisor(report["supervisor"])
                if "ready" in report:
                    properties: dict[str, bool] = report["ready"]
                    return properties
    except TimeoutError:
        if running is None:
            raise WorkerFailed(f"not ready after {START_SECONDS:.0f} s") from None
        raise PreparedFailed(
            f"{running.name}: it had not ended after {running.seconds:g} s: raise prepare_seconds"
        ) from None
    if running is not None:
        raise PreparedFailed(f"{running.name}: it ended its worker, perhaps for lack of memory")
    return None


async def receive_report(control: socket.socket) -> dict[str, Any] | None:
    """Return the next report of a starting worker, None when it has ended.

    Raises WorkerFailed with the step that failed if the worker reports a failure.
    """
    loop = asyncio.get_running_loop()
    try:
        record = await loop.sock_recv(control, wire.RECORD_BYTES)
    except ConnectionResetError:
        # The worker ended without having read what it was sent. Its last report is still there.
        record = await loop.sock_recv(control, wire.RECORD_BYTES)
    if not record:
        return None
    try:
        report: dict[str, Any] = json.loads(record)
    except (ValueError, RecursionError) as error:
        raise WorkerFailed(f"its report cannot be read: {error}") from None
    if "failed" in report:
        raise WorkerFailed(report["failed"])
    return report


class Worker:
    """A warm supervisor behind a control socket, on this host or in a container.

    Discard it once it is `broken`.
    """

    def __init__(
        self,
        control: socket.socket,
        isolation: Isolation,
        folder: WorkingFolder,
        end: Callable[[], Awaitable[None]],
        memory_group: MemoryGroup | None = None,
    ):
        """`isolation`: the properties that the worker measured from inside. `folder`: its working folder.
        `end` kills every process of the worker and returns when they are gone. `memory_group`: the worker's
        control group, or None if this process may make none.
        """
        self.isolation = isolation
        self.folder = folder
        self.broken = False
        self.programs = 0
        """Programs that it has been given."""
        self._control = control
        self._end = end
        self._memory_group = memory_group
        self._ended: asyncio.Future[None] | None = None

    @property
    def alive(self) -> bool:
        """False once the supervisor is gone."""
        if self.broken:
            return False
        poll = select.poll()
        # Between programs a living worker sends nothing, so a readable socket means that it has ended.
        poll.register(self._control, select.POLLIN)
        return not poll.poll(0)

    def limit(self, limits: Limits) -> bool:
        """Set the memory limit of the next program. Return False if another worker must run that."""
        return self._memory_group is None or self._memory_group.limit(limits)

    async def run(self, program: Program, limits: Limits, channel: Channel | None = None) -> Execution:
        """Run one program. Cancelling this call kills the program before the cancellation propagates.

        `channel`: the program's standard streams, in place of `Program.stdin` and of pipes whose content is
        the result's output.
        """
        self.programs += 1
        capture = Capture(asyncio.get_running_loop(), limits.output_bytes)
        fetched = None
        try:
            if channel is None:
                capture.open()
            if program.fetch:
                fetched = os.memfd_create("fetched", os.MFD_CLOEXEC)
            self._send(await _sealed(program), program, limits, capture, fetched, channel)
            capture.start(on_full=self._cancel)
            ending = await self._ending(limits.wall_seconds + _GRACE_SECONDS)
            stdout, stderr = capture.finish()
            files = {}
            if fetched is not None:
                # In a thread, which has a descriptor of its own and goes on if this call is cancelled.
                reading = asyncio.to_thread(_fetched, program, limits, os.dup(fetched))
                files = await asyncio.shield(reading)
        except (OSError, WorkerFailed) as error:
            await self.kill()
            return Execution(status=Status.SANDBOX_FAILED, isolation=self.isolation, detail=str(error))
        finally:
            capture.close()
            if fetched is not None:
                os.close(fetched)
        exit_code = os.waitstatus_to_exitcode(ending.wait_status)
        return Execution(
            status=_status(ending, limits, output_full=capture.full),
            exit_code=exit_code if exit_code >= 0 else None,
            signal=-exit_code if exit_code < 0 else None,
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            truncated=capture.full,
            kept_bytes=len(stdout) + len(stderr),
            cut_bytes=capture.cut,
            wall_seconds=ending.wall_seconds,
            cpu_seconds=ending.cpu_seconds,
            max_rss_bytes=ending.max_rss_bytes,
            files=files,
            isolation=self.isolation,
        )

    async def kill(self) -> None:
        """Kill every process of this worker, and wait until they are gone."""
        self.broken = True
        if self._ended is None:
            # Shut down and not closed: a task that waits for a report then reads the end of the stream, and
            # the descriptor's number cannot be reused while it waits.
            self._control.shutdown(socket.SHUT_RDWR)
            self._ended = asyncio.ensure_future(self._gone())
        await asyncio.shield(self._ended)

    async def _gone(self) -> None:
        await self._end()
        self._control.close()

    def _send(
        self,
        payload: int,
        program: Program,
        limits: Limits,
        capture: Capture,
        fetched: int | None,
        channel: Channel | None,
    ) -> None:
        """Send a program to the worker, and close the descriptor of its payload."""
        job = wire.Job.of(limits, fetch=fetched is not None)
        optional = [] if fetched is None else [fetched]
        sealed = [payload]
        try:
            if channel is None:
                sealed.append(wire.sealed(_encoded(program.stdin)))
            streams = capture.write_ends if channel is None else channel
            socket.send_fds(self._control, [job.pack()], [*sealed, *streams, *optional])
        finally:
            for descriptor in sealed:
                os.close(descriptor)
        capture.release()

    async def _ending(self, most_seconds: float) -> wire.Ending:
        """Wait for the supervisor's report.

        Cancelling this kills the program and waits for the report first.
        """
        report = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(self._control, wire.RECORD_BYTES))
        try:
            done, _ = await asyncio.wait([report], timeout=most_seconds)
            if not done:
                raise WorkerFailed("the worker did not answer and was killed")
            if not (record := report.result()):
                raise WorkerFailed("the worker was lost while the program ran")
            if record.startswith(wire.UNLAID):
                reason = record.removeprefix(wire.UNLAID).decode("utf-8", "replace")
                raise WorkerFailed(f"the program's files could not be written: {reason}")
            return wire.Ending.unpack(record)
        except ValueError as error:
            raise WorkerFailed(f"the worker's report cannot be read: {error}") from None
        except asyncio.CancelledError:
            self._cancel()
            await self._settle(report)
            raise
        finally:
            report.cancel()

    async def _settle(self, report: asyncio.Future[bytes]) -> None:
        """Wait for the end of a cancelled program; kill the worker if it does not come in time."""
        answered = False
        try:
            await asyncio.wait([report], timeout=_GRACE_SECONDS)
            answered = report.done() and not report.exception() and bool(report.result())
            # The end of the process that reported it comes later.
            answered = answered and not report.result().startswith(wire.UNLAID)
        finally:
            if not answered:
                await self.kill()

    def _cancel(self) -> None:
        # If the worker is gone, the task that waits for its report finds out.
        with contextlib.suppress(OSError):
            self._control.send(wire.CANCEL)


async def _sealed(program: Program) -> int:
    """Return a descriptor of a program's payload. Raises TypeError for bindings that are not JSON."""
    seal = partial(
        wire.Payload.seal,
        _encoded(program.source),
        json.dumps(dict(program.bindings)),
        program.files,
        program.fetch,
        program.seed,
    )
    if not has_large_files(program):
        return seal()
    sealing = asyncio.ensure_future(asyncio.to_thread(seal))
    try:
        return await asyncio.shield(sealing)
    except asyncio.CancelledError:
        # The thread goes on.
        sealing.add_done_callback(lambda done: None if done.exception() else os.close(done.result()))
        raise


def _encoded(text: str) -> bytes:
    """Encode any text as UTF-8. Bytes that "surrogateescape" has decoded become themselves again."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Other halves of a character stand for no byte.
        return text.encode("utf-8", "surrogatepass")


def _fetched(program: Program, limits: Limits, descriptor: int) -> dict[str, bytes]:
    """Read the files that the worker sent, and close the descriptor."""
    try:
        size = os.fstat(descriptor).st_size
        if size > scratch.most_fetched_bytes(program.fetch, limits.disk_bytes):
            raise WorkerFailed(f"the worker sent {size} bytes of files, more than the limit")
        return scratch.fetched(program.fetch, descriptor)
    except ValueError as error:
        raise WorkerFailed(f"the worker's record of files cannot be read: {error}") from None
    finally:
        os.close(descriptor)


def _status(ending: wire.Ending, limits: Limits, *, output_full: bool) -> Status:
    if output_full:
        return Status.OUTPUT_LIMIT
    if ending.killed_for == wire.Ending.WALL:
        return Status.WALL_LIMIT
    if ending.killed_for == wire.Ending.MEMORY:
        return Status.MEMORY_LIMIT
    if ending.killed_for == wire.Ending.CPU or (
        # RLIMIT_CPU backs up the supervisor's own check. A program may also send itself this signal, which is
        # why its CPU time counts too.
        os.WIFSIGNALED(ending.wait_status)
        and os.WTERMSIG(ending.wait_status) == signal.SIGXCPU
        and ending.cpu_seconds >= limits.cpu_seconds
    ):
        return Status.CPU_LIMIT
    if os.WIFSIGNALED(ending.wait_status):
        return Status.SIGNAL
    return Status.ERROR if ending.wait_status else Status.OK


class Capture:
    """Two pipes and the bytes read from them; whatever exceeds the limit is dropped and sets `full`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most_bytes: int):
        """`most_bytes`: limit for both streams together."""
        self.full = False
        """True once the limit was exceeded."""
        self.cut = 0
        """Bytes that were dropped."""
        self._loop = loop
        self._left = most_bytes
        self._on_full: Callable[[], None] | None = None
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        # Not lists of chunks: a program that writes single bytes could make millions of them.
        self._taken: dict[int, bytearray] = {}
        self.write_ends: list[int] = []
        """Descriptors for the program: standard output, standard error."""

    def open(self) -> None:
        """Make the pipes. Raises OSError; `close` closes what was made."""
        for _ in ("stdout", "stderr"):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            self._taken[read_end] = bytearray()
            self.write_ends.append(write_end)

    def start(self, on_full: Callable[[], None]) -> None:
        """Start reading; `on_full` is called once, when the limit is exceeded."""
        self._on_full = on_full
        for read_end in self._taken:
            self._loop.add_reader(read_end, self._follow, read_end)

    def release(self) -> None:
        """Close the host's copies of the write ends, once the worker has received its own."""
        while self.write_ends:
            os.close(self.write_ends.pop())

    def finish(self) -> tuple[bytes, bytes]:
        """Read what is left once every writer is dead; return standard output and standard error."""
        for read_end in self._taken:
            while self._read(read_end) > 0:
                pass
        stdout, stderr = map(bytes, self._taken.values() or (b"", b""))
        return stdout, stderr

    def close(self) -> None:
        """Stop reading and close every descriptor."""
        self.release()
        for pause in self._pauses.values():
            pause.cancel()
        for read_end in self._taken:
            self._loop.remove_reader(read_end)
            os.close(read_end)

    def _follow(self, read_end: int) -> None:
        size = self._read(read_end)
        # A pipe of packets, which a program can make of it, still has most of its content.
        little = 0 < size <= _LITTLE and _waiting(read_end) <= size
        if little or size == 0:
            self._loop.remove_reader(read_end)
        if little:
            again = partial(self._loop.add_reader, read_end, self._follow, read_end)
            self._pauses[read_end] = self._loop.call_later(_PAUSE_SECONDS, again)

    def _read(self, read_end: int) -> int:
        """Read one chunk. Return its size: 0 at the end of the stream, and -1 if there is none now."""
        try:
            chunk = os.read(read_end, CHUNK)
        except BlockingIOError:
            return -1
        if len(chunk) > self._left and not self.full:
            self.full = True
            if self._on_full is not None:
                self._on_full()
        self._taken[read_end] += chunk[: self._left]
        self.cut += max(0, len(chunk) - self._left)
        self._left -= min(len(chunk), self._left)
        return len(chunk)


def _waiting(pipe: int) -> int:
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
