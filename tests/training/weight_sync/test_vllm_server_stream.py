"""Weights that stream to a real vLLM server on a CPU: equal tokens, bytes, memory, and killed processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from tests.training.conftest import tokenizer_of_words
from tests.vllm_server import HEAD, serving
from tirjudge.generation import Sampling
from tirjudge_environments import Context, Prompt
from tirjudge_training.weight_sync import vllm_servers
from tirjudge_training.weight_sync.vllm_servers import (
    EXTENSION,
    INCOMPLETE,
    VllmServerConfig,
    VllmServerPolicy,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(600),
]
LAYERS, HIDDEN, MLP = 12, 512, 1024
LARGEST = 4 * HIDDEN * 2 * MLP
"""Bytes of the largest module, half a layer. vLLM holds it as received, assembled, and packed for a CPU."""
CONTEXTS = [(5, 17, 30), tuple(range(2, 60)), (9,)]
GREEDY = Sampling(temperature=0.0, max_tokens=12)
SLACK = 4 << 20
"""Bytes that allocators and buffers of sockets may take beyond the tensors."""


def network(seed: int) -> Qwen3ForCausalLM:
    """Return a model whose layers are large enough to be seen in a process's memory."""
    tokenizer = tokenizer_of_words()
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            intermediate_size=MLP,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=2 * HEAD,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).eval()


def expected(model: Any) -> list[tuple[int, ...]]:
    """Return the greedy tokens of transformers."""
    rows = []
    for ids in CONTEXTS:
        row = torch.tensor([ids])
        with torch.no_grad():
            out = model.generate(row, do_sample=False, max_new_tokens=GREEDY.max_tokens)
        rows.append(tuple(out[0, len(ids) :].tolist()))
    return rows


async def sampled(policy: VllmServerPolicy) -> list[tuple[int, ...] | None]:
    return [
        (await policy.generator.generate(Context(Prompt(messages=()), (), ids), GREEDY)).token_ids
        for ids in CONTEXTS
    ]


def worker_of(server: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the process that holds the model."""
    (worker,) = (
        child
        for child in psutil.Process(server.pid).children(recursive=True)
        if "Worker" in "".join(child.cmdline())
    )
    return worker


def memory(process: psutil.Process, entry: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    found = re.search(rf"{entry}:\s*(\d+) kB", status)
    assert found
    return 1024 * int(found[1])


def answer(url: str, timeout: float) -> httpx.Response:
    model = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    body = {"model": model, "prompt": [5, 17, 30], "max_tokens": 4, "temperature": 0}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=timeout)


def main(folder: Path, url: str) -> None:
    """Sync as a trainer that is killed in the middle of a layer, after the queries and before the keys."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights = vllm_servers.full_weights

    def killed(model: Any) -> Iterator[tuple[str, Any]]:
        for name, tensor in weights(model):
            if name == "model.layers.6.self_attn.k_proj.weight":
                os.kill(os.getpid(), signal.SIGKILL)
            yield name, tensor

    vllm_servers.full_weights = killed
    tokenizer = AutoTokenizer.from_pretrained(folder)
    VllmServerPolicy(model, tokenizer, "policy", config=VllmServerConfig(urls=(url,)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    network(seed=0).save_pretrained(folder)
    tokenizer_of_words().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    # With a low threshold glibc returns the memory of every tensor that was freed.
    settings = {"VLLM_SERVER_DEV_MODE": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    with serving(folder, "--worker-extension-cls", EXTENSION, **settings) as (process, url):
        yield process, url


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as loop:
        yield loop


@contextmanager
def syncing(model: Any, url: str, loop: asyncio.Runner) -> Iterator[VllmServerPolicy]:
    """Send the model to the server, and close the policy afterwards."""
    policy = VllmServerPolicy(model, tokenizer_of_words(), "policy", config=VllmServerConfig(urls=(url,)))
    try:
        yield policy
    finally:
        loop.run(policy.close())


def test_streamed_weights_give_the_tokens_of_transformers_and_one_module_at_a_time_is_held_twice(
    server: tuple[subprocess.Popen[bytes], str], loop: asyncio.Runner
) -> None:
    process, url = server
    model, new = network(seed=1), network(seed=2)
    with syncing(model, url, loop) as policy:
        assert loop.run(sampled(policy)) == expected(model)
        with torch.no_grad():
            for weight, changed in zip(model.parameters(), new.parameters(), strict=True):
                weight.copy_(changed)
        worker = worker_of(process)
        before = memory(worker, "VmRSS")
        Path(f"/proc/{worker.pid}/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
        loop.run(policy.refresh())
        further = memory(worker, "VmHWM") - before
        assert policy.passed == 4 * new.num_parameters(), "in the server's type, which is float32"
        assert further < 3 * LARGEST + SLACK
        assert loop.run(sampled(policy)) == expected(new)


def test_a_server_whose_trainer_is_killed_in_a_sync_answers_only_with_the_weights_of_the_next_one(
    folder: Path, server: tuple[subprocess.Popen[bytes], str], loop: asyncio.Runner
) -> None:
    url = server[1]
    assert answer(url, timeout=60).status_code == 200
    trainer = subprocess.run([sys.executable, __file__, str(folder), url], check=False)
    assert trainer.returncode == -signal.SIGKILL
    assert httpx.get(f"{url}/weight_info").json()["weight_version"] == INCOMPLETE
    with pytest.raises(httpx.ReadTimeout):
        answer(url, timeout=3)
    model = network(seed=3)
    with syncing(model, url, loop) as policy:
        assert loop.run(sampled(policy)) == expected(model)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
