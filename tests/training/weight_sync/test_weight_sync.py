"""A vLLM server that cannot load the trainer's weights, or has lost them, is reported in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.loopback import served
from tests.tirjudge.judge_command import command
from tests.training.miniature import MINI, assignments
from tirjudge.generation import GeneratorFailed
from tirjudge.generation.vllm import SharedTensor
from tirjudge.generation.vllm_worker import open_shared
from tirjudge_training.run import preflight
from tirjudge_training.weight_sync.vllm_servers import EXTENSION, INCOMPLETE, WeightServer

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

    async def info(self, request: Request) -> Response:
        assert request.query_params["config_format"] == "json"
        parallel, model = {"worker_extension_cls": self.extension}, {"logprobs_mode": self.logprobs}
        return JSONResponse({"vllm_config": {"parallel_config": parallel, "model_config": model}})

    async def models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "served"}]})

    async def rpc(self, request: Request) -> Response:
        call = await request.json()
        self.asked.append(("rpc", call))
        return self.reload

    async def pause(self, request: Request) -> Response:
        self.asked.append(("pause", request.query_params["mode"]))
        return JSONResponse({"status": "paused"})

    async def resume(self, _: Request) -> Response:
        self.asked.append(("resume", None))
        return JSONResponse({"status": "resumed"})

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
    ("answer", "forgets", "said"),
    [
        (Response("no file", 500), True, "500: no file; .* needs rl.server.weights"),
        (Response(), False, "old weights are still cached"),
    ],
)
def test_a_server_that_fails_in_a_sync_is_one_line_and_generates_nothing(
    answer: Response, forgets: bool, said: str
) -> None:
    vllm = Vllm()
    vllm.reload, vllm.forgets = answer, forgets
    with vllm.up() as server, pytest.raises(GeneratorFailed) as failed:
        server.load(WEIGHTS, "first")
    assert re.fullmatch(f"{server.url}.*{said}.*", str(failed.value)), "one line"
    assert vllm.holds == INCOMPLETE
    assert "resume" not in [kind for kind, _ in vllm.asked]


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


@pytest.mark.parametrize("folder", [True, False])
def test_too_little_memory_for_a_folder_of_weights_is_reported_before_a_run(
    folder: bool, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The /dev/shm of a container has 64 MB by default."""
    parameters = sum(weight.numel() for weight in load_file(tiny_model / "model.safetensors").values())
    output, words = tmp_path / "run", ["train", "--recipe", MINI, "--model", str(tiny_model)]
    words += [word for one in assignments() for word in ("--set", one)]
    words += ["--output", str(output), "--set", "rl.generator=vllm-server", "--set"]
    with Vllm().up() as server:
        monkeypatch.setattr(preflight, "free_bytes", lambda parent: 4 * parameters - 1)
        words += [f'rl.server.urls=["{server.url}"]']
        words += ["--set", f"rl.server.weights={tmp_path}"] if folder else []
        ended = command(*words)
    assert ended.exit_code == 1
    assert "passing them to vLLM takes" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not output.exists()
