"""A vLLM server that cannot load the trainer's weights, or has lost them, is reported in one line."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from tests.loopback import served
from tests.training.miniature import MINI, assignments
from tirjudge.cli import app
from tirjudge.generation import GeneratorFailed, weight_stream
from tirjudge.generation.vllm import SharedTensor
from tirjudge.generation.vllm_worker import open_shared
from tirjudge.generation.weight_stream import WeightReceiver, WeightSender
from tirjudge_training.run import preflight
from tirjudge_training.weight_sync import vllm_servers
from tirjudge_training.weight_sync.vllm_servers import EXTENSION, INCOMPLETE, WeightServer, send_weights

WEIGHTS = Path("/weights")


class Vllm:
    """The routes that a trainer uses, with the answers of vLLM 0.31."""

    def __init__(self) -> None:
        self.extension: str | None = EXTENSION
        self.logprobs = "processed_logprobs"
        self.reload = Response()
        self.forgets = True
        self.holds = "default"
        self.asked: list[tuple[str, Any]] = []
        self.received: dict[str, torch.Tensor] = {}
        self.alive: list[weakref.ref[torch.Tensor]] = []
        self.most = 0
        """Tensors that were held at once, as received."""
        self.fails_at: str | None = None

    async def info(self, request: Request) -> Response:
        assert request.query_params["config_format"] == "json"
        parallel, model = {"worker_extension_cls": self.extension}, {"logprobs_mode": self.logprobs}
        return JSONResponse({"vllm_config": {"parallel_config": parallel, "model_config": model}})

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "served"}]})

    async def rpc(self, request: Request) -> Response:
        call = await request.json()
        self.asked.append(("rpc", call))
        if call["method"] == "receive_weights":
            return await asyncio.to_thread(self.receive, *call["args"])
        return self.reload

    def receive(self, host: str, port: int, token: str) -> Response:
        """Receive weights as a worker does, until this server fails."""
        cpu = torch.device("cpu")
        with WeightReceiver(host, port, token, device=cpu, dtype=torch.bfloat16) as weights:
            for name, tensor in weights:
                self.received[name] = tensor.clone()
                self.alive = [one for one in (*self.alive, weakref.ref(tensor)) if one() is not None]
                self.most = max(self.most, len(self.alive))
                del tensor
                if name == self.fails_at:
                    return Response("out of memory", 500)
        return Response()

    async def pause(self, request: Request) -> Response:
        self.asked.append(("pause", request.query_params["mode"]))
        return JSONResponse({"status": "paused"})

    async def resume(self, _: Request) -> Response:
        self.asked.append(("resume", None))
        return JSONResponse({"status": "resumed"})

    async def world(self, _: Request) -> Response:
        return JSONResponse({"world_size": 1})

    async def reset(self, _: Request) -> Response:
        self.asked.append(("reset", None))
        return JSONResponse({"success": self.forgets})

    async def name(self, request: Request) -> Response:
        self.holds = (await request.json())["new_version"]
        self.asked.append(("name", self.holds))
        return JSONResponse({"success": True})

    async def weights(self, _: Request) -> Response:
        return JSONResponse({"weight_version": self.holds})

    @contextmanager
    def up(self, without: str = "") -> Iterator[WeightServer]:
        handlers: Mapping[str, tuple[str, Any]] = {
            "/server_info": ("GET", self.info),
            "/v1/models": ("GET", self.models),
            "/collective_rpc": ("POST", self.rpc),
            "/pause": ("POST", self.pause),
            "/get_world_size": ("GET", self.world),
            "/resume": ("POST", self.resume),
            "/reset_prefix_cache": ("POST", self.reset),
            "/update_weight_version": ("POST", self.name),
            "/weight_info": ("GET", self.weights),
        }
        there = [
            Route(path, handler, methods=[method])
            for path, (method, handler) in handlers.items()
            if path != without
        ]
        with served(*there) as url:
            yield WeightServer(url)


def test_a_tensor_passes_through_shared_memory_in_the_engines_type() -> None:
    tensors = [torch.randn(3, 5), torch.randn(64, 64), torch.randn(7)]
    with SharedTensor(torch.bfloat16) as place:
        for tensor in tensors:
            found, memory = open_shared(place.hold(tensor))
            assert torch.equal(found, tensor.bfloat16())
            del found
            memory.close()
        assert place.passed == 2 * (15 + 64 * 64 + 7)
        assert place._memory is not None
        file = Path("/dev/shm") / place._memory.name
        assert file.exists()
    assert not file.exists()


WEIGHTS_SENT = {"a": torch.randn(3, 5), "b": torch.randn(400, 300), "c": torch.ones(()), "d": torch.ones(0)}
CPU = torch.device("cpu")


class Visited(WeightSender):
    """A sender to which a stranger connects before any worker does."""

    stranger: socket.socket

    def __enter__(self) -> WeightSender:
        Visited.stranger = socket.create_connection(("127.0.0.1", self.port))
        self.stranger.sendall(b'{"token": "guessed", "gpu": null, "dtype": "bfloat16"}\n')
        return super().__enter__()


def gloo(store: Any, rank: int, size: int) -> Any:
    """Return a group that does what NCCL's does, without a GPU."""
    return dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=60))


@pytest.mark.parametrize("gpus", [False, True])
def test_tensors_stream_to_all_servers_in_their_type_and_a_stranger_gets_none(
    gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between GPUs a process group broadcasts the tensors, else the connections carry them."""
    groups: list[int] = []
    if gpus:
        names = count()
        monkeypatch.setattr(weight_stream, "gpu_of", lambda device: f"GPU-{next(names)}")
        monkeypatch.setattr(weight_stream, "nccl", lambda *place: groups.append(place[1]) or gloo(*place))
    monkeypatch.setattr(vllm_servers, "WeightSender", Visited)
    first, second = Vllm(), Vllm()
    with first.up() as one, second.up() as two:
        passed = send_weights([one, two], WEIGHTS_SENT.items(), CPU, "first")
    for vllm in (first, second):
        assert vllm.received.keys() == WEIGHTS_SENT.keys()
        assert all(torch.equal(vllm.received[name], sent.bfloat16()) for name, sent in WEIGHTS_SENT.items())
        kinds = [kind for kind, _ in vllm.asked]
        assert kinds == ["pause", "name", "rpc", "reset", "name", "resume"]
        assert vllm.holds == "first"
        assert vllm.most == 1
    assert passed == 2 * sum(tensor.numel() for tensor in WEIGHTS_SENT.values())
    with Visited.stranger as stranger:
        assert stranger.recv(1) == b"", "its connection is closed"
    assert sorted(groups) == ([0, 1, 2] if gpus else [])


def ends_at_once(stranger: socket.socket) -> None:
    """End a connection as a port scanner does, by a reset."""
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stranger.close()


@pytest.mark.parametrize(
    "greeting",
    [
        b'{"token": "\\u00e9\\ud800"}\n',
        b"[" * 4000 + b"\n",
        b"[" * 100_000 + b"\n",
        b"GET / HTTP/1.1\r\n",
        b'{"token": ',
        b"",
        None,
    ],
    ids=["marks", "depth", "length", "http", "part", "silence", "reset"],
)
def test_strangers_delay_no_worker(greeting: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """More strangers than may be heard connect first; all others are let go of."""
    monkeypatch.setattr(weight_stream, "GREETING", 3600.0)
    monkeypatch.setattr(weight_stream, "_MOST_STRANGERS", 20)
    with WeightSender("127.0.0.1", CPU) as sender, ExitStack() as opened, ThreadPoolExecutor(1) as pool:
        place = "127.0.0.1", sender.port
        strangers = [opened.enter_context(socket.create_connection(place)) for _ in range(30)]
        for stranger in strangers:
            stranger.sendall(greeting) if greeting is not None else ends_at_once(stranger)
        worker = pool.submit(received, sender.port, sender.token)
        sender.accept(1, lambda: None)
        sender.send("a", WEIGHTS_SENT["a"])
        sender.finish()
        assert torch.equal(worker.result()["a"], WEIGHTS_SENT["a"].bfloat16())
        for stranger in strangers if greeting is not None else ():
            with suppress(ConnectionResetError):  # closed before all of it was read
                assert stranger.recv(1) == b"", "its connection is closed"


def received(port: int, token: str) -> dict[str, torch.Tensor]:
    with WeightReceiver("127.0.0.1", port, token, device=CPU, dtype=torch.bfloat16) as weights:
        return {name: tensor.clone() for name, tensor in weights}


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"dtype": "bfloat16"},
        {"dtype": "nonsense", "gpu": None},
        {"dtype": "load", "gpu": None},
        {"dtype": ["bfloat16"], "gpu": None},
        {"dtype": "bfloat16", "gpu": ["GPU-0"]},
    ],
)
def test_a_worker_of_another_version_is_one_line(about: dict[str, Any]) -> None:
    with (
        WeightSender("127.0.0.1", CPU) as sender,
        socket.create_connection(("127.0.0.1", sender.port)) as worker,
    ):
        worker.sendall(json.dumps({"token": sender.token, **about}).encode() + b"\n")
        with pytest.raises(ConnectionError, match="use the same version of tirjudge") as refused:
            sender.accept(1, lambda: None)
        assert "\n" not in str(refused.value)


PLACE = b'{"store": null}\n'


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"[]\n",
        b"{}\n",
        b'{"store": "x", "rank": 1, "size": 2}\n',
        b'{"store": 80}\n',
        PLACE + b"hello\n",
        PLACE + b'{"name": "a"}\n',
        PLACE + b'{"name": ["a"], "shape": [1]}\nab',
        PLACE + b'{"name": "a", "shape": [-3]}\n',
        PLACE + b'{"name": "a", "shape": [1.5]}\n',
        PLACE + b'{"name": "a", "shape": "3"}\n',
        PLACE + b'{"name": "a", "shape": [1000000000000000]}\n',
        PLACE + b'{"name": "a", "shape": [4000000000, 4000000000, 4000000000]}\n',
        PLACE + b'{"name": "a", "shape": [1180591620717411303424]}\n',
        PLACE + b'{"name": "a", "shape": [3]}\nab',
        PLACE + b'{"done": "no"}\n',
        PLACE + b"a" * (2 << 20),
    ],
)
def test_what_is_no_weights_ends_a_sync_in_one_line(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trainer, ThreadPoolExecutor(1) as pool:
        worker = pool.submit(received, trainer.getsockname()[1], "token")
        connection, _ = trainer.accept()
        with connection, suppress(ConnectionError):  # the worker need not read to the end
            connection.recv(1000)
            connection.sendall(sent)
        with pytest.raises(ConnectionError) as refused:
            worker.result()
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("the trainer at 127.0.0.1")


def test_a_server_that_fails_in_a_sync_is_one_line_and_no_server_generates() -> None:
    failing, whole, gathered = Vllm(), Vllm(), []
    failing.fails_at = "a"

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in "abcdefgh":
            gathered.append(name)
            yield name, torch.randn(300, 300)

    with failing.up() as one, whole.up() as two, pytest.raises(GeneratorFailed) as failed:
        send_weights([one, two], weights(), CPU, "first")
    assert re.fullmatch(f".*{one.url}.*out of memory.*generate nothing.*", str(failed.value)), "one line"
    assert "".join(gathered) == "abcdefgh", "every process takes part in gathering"
    for vllm in (failing, whole):
        assert vllm.holds == INCOMPLETE
        assert "resume" not in [kind for kind, _ in vllm.asked]


def test_a_trainer_that_fails_to_gather_a_tensor_leaves_no_server_waiting() -> None:
    vllm = Vllm()

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", torch.randn(300, 300)
        raise RuntimeError("cannot gather")

    with vllm.up() as server, pytest.raises(RuntimeError, match="cannot gather"):
        send_weights([server], weights(), CPU, "first")
    assert vllm.holds == INCOMPLETE


async def test_weights_are_loaded_and_named_and_the_cache_is_dropped() -> None:
    vllm = Vllm()
    with vllm.up() as server:
        server.check()
        assert server.served_model() == "served"
        server.load(WEIGHTS, "first")
        await server.require("first")
        await server.close()
    assert vllm.asked == [
        ("pause", "abort"),
        ("name", INCOMPLETE),
        ("rpc", {"method": "reload_from", "args": [str(WEIGHTS)]}),
        ("reset", None),
        ("name", "first"),
        ("resume", None),
    ]


@pytest.mark.parametrize(
    ("extension", "logprobs"), [(None, "processed_logprobs"), (EXTENSION, "raw_logprobs")]
)
def test_a_server_with_other_settings_is_refused_with_the_right_ones(
    extension: str | None, logprobs: str
) -> None:
    vllm = Vllm()
    vllm.extension, vllm.logprobs = extension, logprobs
    with vllm.up() as server, pytest.raises(GeneratorFailed) as refused:
        server.check()
    assert "VLLM_SERVER_DEV_MODE=1" in str(refused.value)
    assert f"--worker-extension-cls {EXTENSION}" in str(refused.value)
    assert repr(logprobs) in str(refused.value)


def test_a_server_without_the_development_routes_is_refused() -> None:
    route = "/server_info"
    with Vllm().up(without=route) as server, pytest.raises(GeneratorFailed) as refused:
        server.check()
    assert f"no route {route}: start it with VLLM_SERVER_DEV_MODE=1" in str(refused.value)


async def test_other_weights_are_detected() -> None:
    vllm = Vllm()
    with vllm.up() as server:
        server.load(WEIGHTS, "first")
        vllm.holds = "default"
        with pytest.raises(GeneratorFailed, match="it was restarted"):
            await server.require("first")
        await server.close()


@pytest.mark.parametrize(
    ("folder", "lacking"), [(True, "passing them to vLLM takes"), (False, "the run writes at least")]
)
def test_too_little_memory_for_a_folder_of_weights_is_reported_before_a_run(
    folder: bool, lacking: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The /dev/shm of a container has 64 MB by default. A stream to a server needs none of it."""
    parameters = sum(weight.numel() for weight in load_file(tiny_model / "model.safetensors").values())
    output, words = tmp_path / "run", ["train", "--recipe", MINI, "--model", str(tiny_model)]
    words += [word for one in assignments() for word in ("--set", one)]
    words += ["--output", str(output), "--set", "rl.generator=vllm-server", "--set"]
    with Vllm().up() as server:
        monkeypatch.setattr(preflight, "free_bytes", lambda parent: 4 * parameters - 1)
        monkeypatch.setattr(preflight, "available_disk", lambda folder: 0)  # what is checked next
        words += [f'rl.server.urls=["{server.url}"]']
        words += ["--set", f"rl.server.weights={tmp_path}"] if folder else []
        ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 1
    assert lacking in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not output.exists()
