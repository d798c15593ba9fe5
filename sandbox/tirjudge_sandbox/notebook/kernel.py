"""The program that a notebook's worker runs: an IPython kernel, and a client that connects it to the host.

The module is sent as source, so it imports nothing of this package. Standard input is a socket to the host
that carries frames: four bytes of length, then a JSON object. The host sends {"run": SOURCE, "most": BYTES}
and {"interrupt": true}; the end of its stream ends the notebook. The host receives `started` and `ready`, and
for a cell `display`, `error`, `end`, and `left_out` for a display or an error of more than BYTES. What a cell
prints goes straight into pipes to the host, so that it is not lost with the kernel. The client is a child of
the kernel with the same user, so code in a cell can kill it and send frames in its place.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

LENGTH = struct.Struct("=I")
PREPARED: dict[str, Any] | None = globals().get("PREPARED")
"""The namespace of the prepared program, in which the cells go on; None without one."""
_FOLDER = ".kernel"
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_M_ARENA_MAX = -8
_MOST_FRAMES, _KEPT_FRAMES = 1000, 50
"""A traceback of more than `_MOST_FRAMES` frames is cut to the outermost `_KEPT_FRAMES`."""
_FRAME_BYTES = 2 << 10
"""Memory for each level of recursion: CPython needs hours to report that the memory ended in a deep one."""
_MOST_CHAINED = 100
"""The most exceptions of one chain (`__cause__`, `__context__`) whose tracebacks are cut."""


class Client:
    """Translates between Jupyter's protocol, spoken by the kernel, and the frames of the host."""

    def __init__(self, host: socket.socket, kernel: int, folder: str, connection: dict[str, Any]):
        from jupyter_client.blocking.client import BlockingKernelClient
        from zmq.constants import PollEvent
        from zmq.sugar.poll import Poller

        self._host = host
        self._kernel = kernel
        self._folder = folder
        self._client = BlockingKernelClient()
        self._client.load_connection_info(connection)
        self._client.start_channels(stdin=False, control=False, hb=False)
        self._shell = self._client.shell_channel.socket
        self._iopub = self._client.iopub_channel.socket
        self._poller = Poller()
        for source in (self._host, self._shell, self._iopub):
            self._poller.register(source, PollEvent.POLLIN)
        self._request: str | None = None
        self._failure: dict[str, Any] | None = None
        """The reply to a cell that failed."""
        self._showed = False
        """True once an error of the cell was sent."""
        self._most = 0
        self._replied = self._idle = self._exit = self._ready = False
        # Before the welcome the subscription may not hold yet, and the output of a cell could be lost.
        self._awaited = {"iopub_welcome", "kernel_info_reply"}
        self._client.kernel_info()

    def serve(self) -> None:
        """Forward requests and outputs until the host closes the socket."""
        while True:
            for source, _ in self._poller.poll():
                if source == self._host.fileno():
                    frame = self._received()
                    if frame is None:
                        return
                    self._obey(frame)
                else:
                    self._take(source)

    def _send(self, **frame: object) -> None:
        send(self._host, frame)

    def _received(self) -> dict[str, Any] | None:
        length = self._host.recv(LENGTH.size, socket.MSG_WAITALL)
        if len(length) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack(length)
        frame: dict[str, Any] = json.loads(self._host.recv(size, socket.MSG_WAITALL))
        return frame

    def _obey(self, frame: dict[str, Any]) -> None:
        if "interrupt" in frame:
            os.kill(self._kernel, signal.SIGINT)
        else:
            self._replied = self._idle = self._showed = False
            self._most = frame["most"]
            self._request = self._client.execute(frame["run"], allow_stdin=False, stop_on_error=False)

    def _take(self, source: Any) -> None:
        _, message = self._client.session.recv(source)
        if message is None:
            return
        kind, content = message["msg_type"], message["content"]
        self._awaited.discard(kind)
        if not (self._awaited or self._ready):
            self._ready = True
            # No other client will connect, and the working folder belongs to the cells.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._send(kind="ready")
        if self._request is None or message["parent_header"].get("msg_id") != self._request:
            return
        self._forward(kind, content)
        if kind == "execute_reply":
            self._replied = True
            self._failure = None if content["status"] == "ok" else content
            self._exit = any(load["source"] == "ask_exit" for load in content.get("payload", ()))
        self._idle |= kind == "status" and content["execution_state"] == "idle"
        # The reply and the outputs, which end with `idle`, come through different sockets and in any order.
        if self._replied and self._idle:
            self._request = None
            if self._failure is not None and not self._showed:
                # The kernel could not send the error itself, or the cell replaced what shows it.
                self._send_error(self._failure)
            self._send(kind="end", exit=self._exit)

    def _forward(self, kind: str, content: dict[str, Any]) -> None:
        if kind in ("display_data", "execute_result", "update_display_data"):
            self._send_whole(kind="display", data=content["data"])
        elif kind == "error":
            self._send_error(content)

    def _send_error(self, content: dict[str, Any]) -> None:
        self._showed = True
        name, value = content.get("ename", "Error"), content.get("evalue", "")
        self._send_whole(kind="error", name=name, value=value, traceback=content.get("traceback") or [])

    def _send_whole(self, **frame: object) -> None:
        """Send a frame that the host accepts; of a larger one, only that it was left out."""
        self._send(**(frame if len(json.dumps(frame)) <= self._most else {"kind": "left_out"}))


def shortened(error: BaseException | None) -> None:
    """Cut the long tracebacks of an exception, and of the exceptions in its chain, to their outermost frames.

    IPython would format each of the million frames of an endless recursion, for minutes. An inner frame would
    keep all outer ones, which may take all of the memory.
    """
    for _ in range(_MOST_CHAINED):
        if error is None:
            return
        if _after(error.__traceback__, _MOST_FRAMES) is not None:
            last = _after(error.__traceback__, _KEPT_FRAMES - 1)
            assert last is not None
            last.tb_next = None
        error = error.__cause__ or error.__context__


def _after(trace: TracebackType | None, frames: int) -> TracebackType | None:
    for _ in range(frames):
        trace = trace and trace.tb_next
    return trace


def encodable(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the function `pack` of a session for messages with half a character, which would be dropped."""
    from jupyter_client.jsonutil import json_clean, json_default

    def packed(message: Any) -> bytes:
        try:
            return pack(message)
        except UnicodeEncodeError:
            return json.dumps(json_clean(message), default=json_default).encode()

    return packed


def send(host: socket.socket, frame: dict[str, object]) -> None:
    """Send a frame; blocks until the host has received it."""
    content = json.dumps(frame).encode()
    host.sendall(LENGTH.pack(len(content)) + content)


def main() -> None:
    """Become the kernel, with the client as its child."""
    # One arena for all threads: an arena each would reserve more address space than cells are allowed.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    host = socket.socket(fileno=os.dup(0))
    send(host, {"kind": "started"})
    # A cell that reads standard input must not take frames of the host.
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    os.mkdir(_FOLDER, 0o700)
    # An absolute path, since a cell may change the working folder.
    folder = os.path.abspath(_FOLDER)
    connection: dict[str, Any] = {f"{name}_port": port for port, name in enumerate(_CHANNELS, 1)}
    connection |= {"transport": "ipc", "ip": f"{folder}/socket", "key": secrets.token_hex()}
    connection |= {"signature_scheme": "hmac-sha256"}
    bound, binding = os.pipe()
    kernel = os.getpid()
    if not os.fork():
        os.close(binding)
        _become_client(host, kernel, folder, connection, bound)
    os.close(bound)
    host.close()
    _be_kernel(folder, connection, binding)


def _become_client(
    host: socket.socket, kernel: int, folder: str, connection: dict[str, Any], bound: int
) -> NoReturn:
    try:
        os.setsid()
        os.read(bound, 1)
        Client(host, kernel, folder, connection).serve()
    finally:
        os.kill(kernel, signal.SIGKILL)
        os._exit(0)


def _be_kernel(folder: str, connection: dict[str, Any], binding: int) -> None:
    from ipykernel.iostream import OutStream
    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    file = f"{folder}/connection.json"
    with open(file, "w") as stream:
        json.dump(connection, stream)
    # The client removes this folder once the kernel is ready, so that IPython leaves nothing to the cells.
    os.environ["IPYTHONDIR"] = folder
    # There is no debugger, and importing it would take longer than all the rest.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.IPKernelApp.capture_fd_output = False
    app = IPKernelApp.instance(connection_file=file, log_level="CRITICAL", config=config, user_ns=PREPARED)
    with warnings.catch_warnings(action="ignore"):
        # It warns that it cannot open a TCP port for the output of subprocesses, which do not exist here.
        app.initialize([])
    app.session.pack = encodable(app.session.pack)
    shell = app.shell

    def show(error: Any = None, **options: Any) -> None:
        error = sys.exc_info() if error is None else error
        shortened(error[1])
        show_shortened(None if error[1] is None else (*error[:2], error[1].__traceback__), **options)

    show_shortened, shell.showtraceback = shell.showtraceback, show

    set_depth, most_depth = sys.setrecursionlimit, resource.getrlimit(resource.RLIMIT_AS)[0] // _FRAME_BYTES
    sys.setrecursionlimit = lambda depth: set_depth(min(depth, most_depth))

    class CellStream(OutStream):  # type: ignore[misc]
        """A stream whose text goes to the host at once, if it comes from the cell that runs or ran last."""

        def __init__(self, name: str, descriptor: int):
            super().__init__(app.session, app.iopub_thread, name, watchfd=False)
            # A copy, since a cell may close the original.
            self._descriptor = os.dup(descriptor)
            self._cell: Any = None

        def set_parent(self, parent: dict[str, Any]) -> None:
            super().set_parent(parent)
            self._cell = self.parent_header

        def write(self, string: str) -> int:
            if not isinstance(string, str):
                raise TypeError(f"write() argument must be str, not {type(string)}")
            content = string.encode()
            while content and self.parent_header == self._cell:
                content = content[os.write(self._descriptor, content) :]
            return len(string)

        def flush(self) -> None:
            """Do nothing: there is no buffer."""

    sys.stdout, sys.stderr = CellStream("stdout", 1), CellStream("stderr", 2)
    # The client waits for the end of this pipe: from now on the sockets of the kernel exist.
    os.close(binding)
    app.start()


if __name__ == "__main__":
    main()
