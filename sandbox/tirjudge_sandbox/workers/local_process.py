"""A worker as two processes of this host: a launcher that isolates, and the supervisor below it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import replace

from tirjudge_sandbox.base import Isolation
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.namespaces import WITHOUT_NAMESPACES
from tirjudge_sandbox.guest.settings import Outside, Preparation
from tirjudge_sandbox.prepared import Prepared
from tirjudge_sandbox.workers import host, interpreter
from tirjudge_sandbox.workers.memory_group import MemoryGroup
from tirjudge_sandbox.workers.worker import Worker, WorkerFailed, send_prepared, until_ready


async def start(
    placement: str, preparation: Preparation, prepared: Prepared | None, working_folder: WorkingFolder
) -> Worker:
    """Start a worker and wait until it is warm. Raises WorkerFailed, naming the step that failed."""
    ours = None
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        # As long as a copy of the other end is open here, `ours` cannot report that the worker has ended.
        with theirs:
            processes = _start_processes(placement, preparation, working_folder, theirs.fileno())
    except OSError as error:
        if ours is not None:
            ours.close()
        raise WorkerFailed(f"its interpreter does not start: {error}") from error
    try:
        if prepared is not None:
            await send_prepared(ours, prepared)
        isolation = await processes.ready(ours, placement, prepared)
    except BaseException as error:
        # A second cancellation must not leave the processes behind.
        await asyncio.shield(_abandoned(processes, ours))
        if isinstance(error, OSError):
            raise WorkerFailed(f"the host cannot wait for it: {error}") from error
        raise
    return Worker(ours, isolation, working_folder, processes.end, processes.memory_group)


async def _abandoned(processes: _Processes, control: socket.socket) -> None:
    await processes.end()
    control.close()


def _start_processes(
    placement: str, preparation: Preparation, working_folder: WorkingFolder, control: int
) -> _Processes:
    folder = None
    if placement not in WITHOUT_NAMESPACES:
        settings = interpreter.pivoted_settings(placement, control, preparation, working_folder)
    else:
        folder = host.TemporaryFolder()
        # The worker's own uid may enter. Its folder in this one is closed to all others.
        folder.path.chmod(0o711)
        settings = interpreter.unpivoted_settings(
            placement, control, preparation, working_folder, str(folder.path)
        )
    group = None
    try:
        group = MemoryGroup.create()
        if group is not None:
            settings = replace(settings, memory_group=group.processes, memory_kills=group.kills)
        return _Processes(settings, folder, group)
    except OSError:
        if group is not None:
            group.discard()
        if folder is not None:
            folder.close()
        raise


class _Processes:
    """The launcher and the supervisor of one worker."""

    def __init__(
        self, settings: Outside, scratch_folder: host.TemporaryFolder | None, memory_group: MemoryGroup | None
    ):
        """Start the launcher. Raises OSError. The folder and the group are removed by `end`."""
        self.memory_group = memory_group
        """The control group of the processes; None where there is none, or they could not join it."""
        self._process = subprocess.Popen(
            interpreter.launch_command(settings),
            stdin=subprocess.DEVNULL,
            # Pipes, as programs get them: an interpreter chooses its streams' buffering when it starts.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[settings.control],
            env=interpreter.launch_environment(),
            cwd="/",
            # The worker has a process group of its own: a terminal sends Ctrl-C to the whole group of this
            # process, and a host that ends in order would lose the programs that it waits for.
            process_group=0,
        )
        self._scratch_folder = scratch_folder
        self._launcher = _descriptor(self._process)
        self._supervisor: int | None = None

    async def ready(self, control: socket.socket, placement: str, prepared: Prepared | None) -> Isolation:
        """Wait until the supervisor is warm; return the isolation that it measured. Raises WorkerFailed."""
        properties = await until_ready(control, prepared, self._remember)
        if properties is None:
            raise WorkerFailed(_last_line(self._process) or "it ended without a message")
        if self.memory_group is not None and not self.memory_group.begin():
            await self.memory_group.remove()
            self.memory_group = None
        return host.isolation(placement, properties)

    def _remember(self, supervisor: int) -> None:
        # A supervisor that has already ended has sent the reason, which is the next report.
        with contextlib.suppress(ProcessLookupError):
            self._supervisor = os.pidfd_open(supervisor)

    async def end(self) -> None:
        """Kill the supervisor, and with it everything in its namespace, and wait for the launcher's end."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._supervisor or self._launcher, signal.SIGKILL)
        await host.readable(self._launcher)
        with self._process:
            pass
        for descriptor in (self._launcher, self._supervisor):
            if descriptor is not None:
                os.close(descriptor)
        if self.memory_group is not None:
            await self.memory_group.remove()
        if self._scratch_folder is not None:
            self._scratch_folder.close()


def _descriptor(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.pidfd_open(process.pid)
    except OSError as error:
        with process:
            process.kill()
        raise OSError(error.errno, f"pidfd_open: {error.strerror}") from None


def _last_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    lines = (process.stdout.read() or b"").decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
