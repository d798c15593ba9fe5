"""The program that a notebook's worker runs: an IPython kernel, and a client that connects it to the host.

The module is sent as source, so it imports nothing of this package. Standard input is a socket to the host
that carries frames: four bytes of length, then a JSON object. The host sends {"run": SOURCE, "most": BYTES}
and {"interrupt": true}; the end of its stream ends the notebook. The host receives `started` and `ready`, and
for a cell `stream`, `display`, `error`, `end`, and `left_out` for a display or an error of more than BYTES.
The client is a child of the kernel with the same user, so code in a cell can kill it and send frames in its
place.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn, TextIO

LENGTH = struct.Struct("=I")
_FOLDER = ".kernel"
_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_M_ARENA_MAX = -8
_CHUNK = 1 << 16
"""Characters of a stream in one frame, so that the beginning of a large output arrives even if a limit stops
it."""
_PIPE_BYTES = 1 << 16
"""Most that a pipe holds, unless it is enlarged."""


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
            self._replied = self._idle = False
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
            self._exit = any(load["source"] == "ask_exit" for load in content.get("payload", ()))
        self._idle |= kind == "status" and content["execution_state"] == "idle"
        # The reply and the outputs, which end with `idle`, come through different sockets and in any order.
        if self._replied and self._idle:
            self._request = None
            self._send(kind="end", exit=self._exit)

    def _forward(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            text = content["text"]
            for start in range(0, len(text), _CHUNK):
                self._send(kind="stream", name=content["name"], text=text[start : start + _CHUNK])
        elif kind in ("display_data", "execute_result", "update_display_data"):
            self._send_whole(kind="display", data=content["data"])
        elif kind == "error":
            self._send_whole(
                kind="error",
                name=content["ename"],
                value=content["evalue"],
                traceback=content["traceback"],
            )

    def _send_whole(self, **frame: object) -> None:
        """Send a frame that the host accepts; of a larger one, only that it was left out."""
        self._send(**(frame if len(json.dumps(frame)) <= self._most else {"kind": "left_out"}))


class DescriptorOutput:
    """Copies what cells write to the standard file descriptors, below Python's streams, into these streams.

    A thread reads while a cell runs, since a full pipe would block the cell. The kernel calls `copy` after
    the cell, which returns only when everything written before is in the streams. ipykernel's own capture
    has only the thread, and loses what this has not read by the end of a cell.
    """

    def __init__(self, streams: Mapping[int, TextIO]):
        """`streams`: for each descriptor that is replaced by a pipe, the stream that receives its output."""
        self._lock = threading.Lock()
        self._streams: dict[int, TextIO] = {}
        for descriptor, stream in streams.items():
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            os.dup2(writing, descriptor)
            os.close(writing)
            self._streams[reading] = stream
        threading.Thread(target=self._follow, daemon=True).start()

    def copy(self) -> None:
        """Copy everything written so far."""
        with self._lock:
            for reading, stream in list(self._streams.items()):
                with contextlib.suppress(BlockingIOError):
                    # One read takes all that a pipe can hold, and ends also while a cell's thread writes.
                    content = os.read(reading, _PIPE_BYTES)
                    stream.write(content.decode(errors="replace"))
                    if not content:  # A cell closed the descriptor.
                        del self._streams[reading]

    def _follow(self) -> None:
        while self._streams:
            select.select(list(self._streams), [], [])
            self.copy()


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
    app = IPKernelApp.instance(connection_file=file, log_level="CRITICAL", config=config)
    with warnings.catch_warnings(action="ignore"):
        # It warns that it cannot open a TCP port for the output of subprocesses, which do not exist here.
        app.initialize([])
    output = DescriptorOutput({1: sys.stdout, 2: sys.stderr})
    app.shell.events.register("post_execute", output.copy)
    # The client waits for the end of this pipe: from now on the sockets of the kernel exist.
    os.close(binding)
    app.start()


if __name__ == "__main__":
    main()
