"""Weights over a network, one tensor at a time: from a trainer to the workers of vLLM servers.

Each worker connects to the trainer. The connection carries names, shapes and, unless NCCL can broadcast them
between GPUs, the tensors. It also shows at once that the other side has ended, on which NCCL alone would wait
for ever. NCCL's group exists for one sync only, so that a server may be restarted between two.
"""

from __future__ import annotations

import json
import secrets
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any, Self

from tirjudge.console_text import one_line

FORMING = 120.0
"""Seconds in which all workers must have connected and joined the group."""
GREETING = 10.0
"""Seconds in which a new connection must identify itself."""
_LONGEST_GREETING = 4096
"""The most bytes of an identification."""
_MOST_STRANGERS = 256
"""Most connections without identification; a further one ends the oldest."""
PATIENCE = 300.0
"""Seconds without any progress after which the other side counts as gone."""
LOOK = 0.0002
"""Seconds between two looks at a broadcast and the other sides."""
LONGEST = 1 << 20
"""The most bytes of a message."""


class Peer:
    """The other side of a connection, which carries JSON objects, one a line, and bytes.

    Every method raises ConnectionError, in one line, if the other side ends or says anything else.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        """`name` is what messages call the other side. Raises OSError if the connection has ended."""
        # TCP would otherwise delay the short message before each tensor until the last one is confirmed.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._stream = connection, connection.makefile("rb")
        self.name = f"the {name} at {connection.getpeername()[0]}"

    def say(self, **message: Any) -> None:
        """Send a message."""
        self.send(json.dumps(message).encode() + b"\n")

    def hear(self) -> Mapping[str, Any]:
        """Wait for a message."""
        try:
            line = self._stream.readline(LONGEST)
        except OSError as error:
            raise self._ended(error) from None
        if not line.endswith(b"\n"):
            raise self._ended()
        if (message := _message(line)) is None:
            raise self.unreadable("no JSON object")
        return message

    def unreadable(self, reason: str) -> ConnectionError:
        """Return the error of a message that no version of this protocol sends."""
        return ConnectionError(
            f"{self.name} sent what is no weights ({reason}): use the same version of tirjudge on both sides"
        )

    def send(self, content: bytes | memoryview) -> None:
        """Send bytes."""
        try:
            self._connection.sendall(content)
        except OSError as error:
            raise self._ended(error) from None

    def fill(self, place: memoryview) -> None:
        """Receive as many bytes as there is place for."""
        try:
            while len(place):
                received = self._stream.readinto(place)
                if not received:
                    raise self._ended()
                place = place[received:]
        except ConnectionError:
            raise
        except OSError as error:
            raise self._ended(error) from None

    def require(self) -> None:
        """Raise ConnectionError if the other side has ended."""
        events = select.poll()
        events.register(self._connection, select.POLLIN)
        try:
            # A closed connection is readable and has no bytes. Bytes that are peeked at stay for `hear`.
            ended = bool(events.poll(0)) and not self._connection.recv(1, socket.MSG_PEEK)
        except OSError as error:
            raise self._ended(error) from None
        if ended:
            raise self._ended()

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()
            self._connection.close()

    def _ended(self, error: OSError | None = None) -> ConnectionError:
        return ConnectionError(f"{self.name} has ended" + (f" ({error})" if error else ""))


class WeightSender:
    """The trainer's side of one sync. A context manager; its end is the end of the sync for every worker.

    Every method raises ConnectionError, in one line, if a worker ends.
    """

    def __init__(self, address: str, device: Any) -> None:
        """Listen at an address of this machine, or at all if it is empty; the weights are on `device`."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.token = secrets.token_hex(16)
        """Words that a worker must know to receive weights."""
        self.passed = 0
        """Bytes that each worker has received."""
        self._device, self._peers, self._open = device, list[Peer](), ExitStack()
        self._group: Group | None = None
        self._listener = self._open.enter_context(socket.create_server((address, 0), family=family))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # The connections end first, so that no worker waits for a broadcast that does not come.
        self._open.close()
        if self._group is not None:
            self._group.close(failed=kind is not None)

    def accept(self, workers: int, check: Callable[[], None]) -> None:
        """Wait until so many workers have connected; `check` is called meanwhile, to raise why not.

        Strangers, who may be silent or slow, delay no worker.
        """
        answers, end = [], time.monotonic() + FORMING
        with _Arrivals(self._listener) as arrivals:
            while len(self._peers) < workers:
                check()
                if time.monotonic() > end:
                    raise ConnectionError(
                        f"{len(self._peers)} of {workers} workers connected to the trainer's port {self.port}"
                    )
                for connection, line in arrivals.greetings(0.05):
                    greeted = self._greeted(connection, line)
                    if greeted is not None:
                        self._peers.append(greeted[0])
                        answers.append(greeted[1])
        self._form(answers)

    def send(self, name: str, tensor: Any) -> None:
        """Pass one tensor to every worker, in the type that the workers compute in."""
        import torch

        # The only copy on this side.
        flat = tensor.detach().to(self._device, self._dtype).contiguous().reshape(-1).view(torch.uint8)
        for peer in self._peers:
            peer.say(name=name, shape=list(tensor.shape))
        if self._group is not None:
            self._group.broadcast(flat, self._peers)
        else:
            content: Any = flat.numpy()
            for peer in self._peers:
                peer.send(memoryview(content))
        self.passed += flat.numel()

    def finish(self) -> None:
        """Say that all weights have been sent."""
        for peer in self._peers:
            peer.say(done=True)

    def _greeted(self, connection: socket.socket, line: bytes) -> tuple[Peer, Mapping[str, Any]] | None:
        """Return a worker and its greeting, or None for a stranger, whose connection is closed."""
        answer = _message(line) or {}
        token = str(answer.get("token")).encode(errors="surrogatepass")
        # Every wrong token takes the same time, since any machine of the network may connect and try.
        if secrets.compare_digest(token, self.token.encode()):
            with suppress(OSError):  # a worker that has ended already, which `check` reports
                peer = Peer(connection, "worker")
                connection.settimeout(PATIENCE)
                self._open.callback(peer.close)
                return peer, answer
        connection.close()
        return None

    def _form(self, answers: Iterable[Mapping[str, Any]]) -> None:
        """Agree with all workers on the way of the tensors."""
        import torch

        answers = list(answers)
        for peer, answer in zip(self._peers, answers, strict=True):
            if not _is_dtype(answer.get("dtype")) or not isinstance(answer.get("gpu", 0), str | None):
                raise peer.unreadable("a greeting has the type of its weights, and its GPU or null")
        types = {answer["dtype"] for answer in answers}
        if len(types) > 1:
            raise ConnectionError(f"the servers compute in different types: {', '.join(sorted(types))}")
        self._dtype = getattr(torch, types.pop())
        gpus = [gpu_of(self._device), *(answer["gpu"] for answer in answers)]
        # NCCL takes each GPU once.
        if all(gpus) and len(set(gpus)) == len(gpus):
            store = _store("0.0.0.0")
            for rank, peer in enumerate(self._peers, start=1):
                peer.say(rank=rank, size=len(gpus), store=store.port)
            self._group = Group(store, 0, len(gpus))
        else:
            self._device = torch.device("cpu")
            for peer in self._peers:
                peer.say(store=None)


class _Arrivals:
    """Connections without identification so far. A context manager, which closes the connections."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._selector = listener, selectors.DefaultSelector()
        self._said: dict[socket.socket, bytes] = {}
        self._until: dict[socket.socket, float] = {}
        """Seconds on the monotonic clock, the earliest first."""
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for connection in tuple(self._said):
            self._leave(connection).close()
        self._selector.close()

    def greetings(self, timeout: float) -> Iterator[tuple[socket.socket, bytes]]:
        """Yield connections whose first line has arrived, with the line."""
        for key, _ in self._selector.select(timeout):
            connection: Any = key.fileobj
            if connection is self._listener:
                self._arrive()
            elif connection in self._said:
                self._read(connection)
                if self._said.get(connection, b"").endswith(b"\n"):
                    line = self._said[connection]
                    yield self._leave(connection), line
        now = time.monotonic()
        for connection in [one for one, until in self._until.items() if until < now]:
            self._leave(connection).close()

    def _arrive(self) -> None:
        with suppress(OSError):  # a connection that has ended meanwhile
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self._said[connection], self._until[connection] = b"", time.monotonic() + GREETING
        if len(self._said) > _MOST_STRANGERS:
            self._leave(next(iter(self._said))).close()

    def _read(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(_LONGEST_GREETING)
        except OSError:
            received = b""
        self._said[connection] += received
        if not received or len(self._said[connection]) > _LONGEST_GREETING:
            self._leave(connection).close()

    def _leave(self, connection: socket.socket) -> socket.socket:
        self._selector.unregister(connection)
        del self._said[connection], self._until[connection]
        return connection


class WeightReceiver:
    """A worker's side of one sync: iterating yields name and tensor of every weight. A context manager.

    Every method raises ConnectionError, in one line, if the trainer ends before all weights were sent, or
    sends anything else.
    """

    def __init__(self, host: str, port: int, token: str, *, device: Any, dtype: Any) -> None:
        """Connect to the trainer; `device` and `dtype` are what this worker computes in."""
        import torch

        try:
            connection = socket.create_connection((host, port), timeout=PATIENCE)
        except OSError as error:
            raise ConnectionError(
                f"cannot reach the trainer at {host}:{port} ({error}): open its ports to this machine, or "
                "set rl.server.weights to a folder that both see"
            ) from None
        self._peer, self._dtype = Peer(connection, "trainer"), dtype
        self._group: Group | None = None
        try:
            self._peer.say(token=token, gpu=gpu_of(device), dtype=str(dtype).removeprefix("torch."))
            place = self._peer.hear()
            store, *ranks = (place.get(name, "") for name in ("store", "rank", "size"))
            self._device = torch.device("cpu") if store is None else device
            if store is not None:
                if not _are_counts(store, *ranks):
                    raise self._peer.unreadable("a place in a group has a store, a rank and a size")
                self._group = Group(_store(host, store), *ranks)
        except BaseException:
            self._peer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._peer.close()
        if self._group is not None:
            self._group.close(failed=kind is not None)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        import torch

        while (message := self._peer.hear()).get("done") is not True:
            name, shape = message.get("name"), message.get("shape")
            if not isinstance(name, str) or not isinstance(shape, list) or not _are_counts(*shape):
                raise self._peer.unreadable("a weight has a name and a shape")
            try:
                tensor = torch.empty(shape, dtype=self._dtype, device=self._device)
            except (RuntimeError, TypeError) as error:  # no memory has such a size
                raise self._peer.unreadable(one_line(error, 100)) from None
            flat = tensor.reshape(-1).view(torch.uint8)
            if self._group is not None:
                self._group.broadcast(flat, [self._peer])
            else:
                place: Any = flat.numpy()
                self._peer.fill(memoryview(place))
            yield name, tensor
            del tensor, flat  # before the next one


class Group:
    """A separate torch process group, independent of the default group of this process."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        """Join the group. Raises ConnectionError."""
        try:
            self._group = nccl(store, rank, size)
        except RuntimeError as error:
            raise ConnectionError(f"the process group did not form: {one_line(error)}") from None

    def broadcast(self, flat: Any, peers: Iterable[Peer]) -> None:
        """Pass the bytes from rank 0 to the others. Raises ConnectionError if a peer ends."""
        if not flat.numel():
            return
        peers, end = list(peers), time.monotonic() + PATIENCE
        try:
            work = self._group.broadcast(flat, 0)
            while not work.is_completed():
                for peer in peers:
                    peer.require()
                if time.monotonic() > end:
                    raise ConnectionError("a broadcast did not end")
                time.sleep(LOOK)
            work.wait()
        except RuntimeError as error:
            raise ConnectionError(one_line(error)) from None

    def close(self, *, failed: bool) -> None:
        """Leave the group; if the sync failed, without waiting for a broadcast that will not end."""
        with suppress(RuntimeError):
            self._group.abort() if failed else self._group.shutdown()


def nccl(store: Any, rank: int, size: int) -> Any:
    """Return a process group between GPUs."""
    import torch.distributed as dist

    return dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())


def gpu_of(device: Any) -> str | None:
    """Return the name of a GPU that no other one on any machine has; None for another device."""
    import torch

    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def _message(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None for anything else."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # the latter for JSON that is nested too deeply
        return None
    return message if isinstance(message, dict) else None


def _are_counts(*values: object) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values)


def _is_dtype(name: object) -> bool:
    """Return True for the name of one of torch's types of floats."""
    import torch

    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    return isinstance(dtype, torch.dtype) and dtype.is_floating_point


def _store(host: str, port: int = 0) -> Any:
    """Connect to the store that a group forms with; without a port, start one at a free port."""
    import torch.distributed as dist

    store: Any = dist.TCPStore  # type: ignore[attr-defined]
    # Waiting for the workers would never end: they learn the port of the store only once it has started.
    return store(host, port, None, not port, timedelta(seconds=FORMING), wait_for_workers=False)
