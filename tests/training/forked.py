"""Training in processes forked from one that has already imported torch and TRL.

A process of its own spends seven CPU seconds on these imports. Tests in `tests/training/distributed` run the
launchers themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.training.preloaded"])


class Forked:
    """A running process with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        function: Callable[..., object],
        *arguments: object,
        stdout: Path | None = None,
        stderr: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Call the function; its output is appended to the files, and discarded without them."""
        self._process = _CONTEXT.Process(
            target=_call, args=(function, arguments, stdout, stderr, dict(environment or {}))
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _call(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    stdout: Path | None,
    stderr: Path | None,
    environment: dict[str, str],
) -> None:
    os.setsid()
    # The server of forks ignores Ctrl-C, which a command must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
    os.environ.update(environment)
    function(*arguments)


def tirjudge(*words: str, stderr: Path | None = None) -> Forked:
    """Start the `tirjudge` command."""
    return Forked(_command, words, stderr=stderr)


def _command(words: tuple[str, ...]) -> None:
    sys.argv = ["tirjudge", *words]
    import_module("tirjudge.cli").main()


def in_two_processes(function: Callable[..., object], *arguments: object, folder: Path) -> None:
    """Call the function in two processes with the variables of torchrun; their output goes to `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "two-processes.log"
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    both = [
        Forked(
            function,
            *arguments,
            stderr=log,
            environment={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [one.wait() for one in both] == [0, 0], log.read_text()[-3000:]


def killed(
    train: Callable[[Path, Path, Callable[[str], None]], object], start: Path, folder: Path, at: str
) -> int:
    """Call `train` in a process that kills itself at the line of progress that begins with `at`.

    Returns its exit status.
    """
    return Forked(_killed, train, start, folder, at).wait()


def _killed(
    train: Callable[[Path, Path, Callable[[str], None]], object], start: Path, folder: Path, at: str
) -> None:
    def say(line: str) -> None:
        if line.startswith(at):
            os.kill(os.getpid(), signal.SIGKILL)

    train(start, folder, say)
