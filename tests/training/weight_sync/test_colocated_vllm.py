"""Training with the real vLLM on a CPU, which gets the trainer's weights before every rollout."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.training.conftest import ENVIRONMENTS, tiny_qwen, tokenizer_of_words, train_and_save
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.generation.vllm import VllmGenerator
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Context, Prompt
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.weight_sync.base import can_stream
from tirjudge_training.weight_sync.colocated_vllm import VllmPolicy, own_device

CONFIG = RlConfig(
    steps=3,
    groups=2,
    samples=4,
    filter="none",
    max_tokens=60,
    learning_rate=1e-2,
    generator="vllm",
    vllm={"dtype": "float32", "enforce_eager": True},
    importance_cap=2.0,
    entropy_bonus=0.1,  # random weights earn no reward
)
HEAD = 32
"""The smallest head dimension that vLLM's CPU kernels support."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def main(start: Path, folder: Path) -> None:
    """Train in all launched processes, each with its own engine."""
    train_and_save(start, folder, CONFIG, processes=Processes.launched())


@pytest.mark.vllm
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.timeout(600)
def test_samples_are_the_trainers_own_after_every_step_in_every_process(tmp_path: Path) -> None:
    """A stale tied output layer or KV cache would show as a gap between the logprobs."""
    start, folder = tmp_path / "start", tmp_path / "run"
    tokenizer = tokenizer_of_words()
    model = tiny_qwen(tokenizer, head_dim=HEAD)
    assert model.config.tie_word_embeddings
    model.save_pretrained(start)
    tokenizer.save_pretrained(start)
    subprocess.run([sys.executable, *TORCHRUN, __file__, str(start), str(folder)], check=True)
    before, after = (load_file(one / "model.safetensors") for one in (start, folder / "model"))
    embedding = "model.embed_tokens.weight"
    assert (after[embedding] - before[embedding]).abs().max() > 1e-3, "the weights must have changed"
    metrics = list(read_lines(folder / "metrics.jsonl"))
    assert len(metrics) == CONFIG.steps
    assert all(0 < row["sampler_gap"] < 1e-4 for row in metrics), "the largest gap of all processes"
    assert all(row["entropy"] > 0 for row in metrics)
    machine = json.loads((folder / "machine.json").read_text())
    assert (machine["sampler"], machine["sampling"]) == ("VllmGenerator", "float32")


@pytest.mark.parametrize(
    ("kind", "engine", "streams"),
    [
        ("qwen3", {}, True),
        ("qwen3", {"tensor_parallel_size": 2}, False),
        ("qwen3_moe", {"gpu_memory_utilization": 0.4}, False),
    ],
)
def test_weights_are_streamed_if_the_engine_can_take_them_one_by_one(
    kind: str, engine: dict[str, float], streams: bool
) -> None:
    """transformers holds the experts of a layer in one tensor, of which a model file has one per expert."""
    config = AutoConfig.for_model(kind, hidden_size=32, num_hidden_layers=1, vocab_size=64)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert can_stream(model, engine) == streams


class Recorder:
    """An engine of vLLM that only records what it is asked, in order; its answers are those of vLLM 0.31."""

    def __init__(self, asked: list[str]) -> None:
        self.asked, self.errored = asked, False
        self.model_config = SimpleNamespace(max_model_len=64, dtype=torch.float32)

    async def collective_rpc(self, method: str, args: tuple[object, ...] = ()) -> None:
        if self.asked[-1] != method:
            self.asked.append(method)

    async def reset_prefix_cache(self) -> bool:
        return True

    async def sleep(self, level: int) -> None:
        self.asked.append(f"sleep at level {level}")

    async def wake_up(self, tags: list[str]) -> None:
        self.asked.append(f"wake {' and '.join(tags)}")

    async def generate(self, *request: object, **settings: object) -> AsyncIterator[object]:
        self.asked.append("generate")
        token = {7: SimpleNamespace(logprob=-0.5)}
        output = SimpleNamespace(token_ids=[7], logprobs=[token], finish_reason="stop", stop_reason=None)
        yield SimpleNamespace(outputs=[output])

    def shutdown(self) -> None:
        self.asked.append("shutdown")


@pytest.mark.parametrize("gpus", [1, 2])
async def test_an_engine_that_may_sleep_holds_gpu_memory_only_while_it_samples(
    gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights wake first, since the KV cache would take the memory that passing them needs.

    An engine over two GPUs gets its weights through a folder.
    """
    asked = ["load"]
    loaded: dict[str, object] = {}

    def load(path: str, **settings: object) -> VllmGenerator:
        loaded.update(settings)
        return VllmGenerator(Recorder(asked), ChatEncoder(tokenizer_of_words()), name=path)

    monkeypatch.setattr(VllmGenerator, "load", load)
    monkeypatch.setattr(VllmGenerator, "_parameters", lambda *_: None)  # the rest needs vLLM
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty torch's cache"))
    tokenizer = tokenizer_of_words()
    policy = VllmPolicy(
        tiny_qwen(tokenizer, head_dim=HEAD),
        tokenizer,
        "policy",
        enable_sleep_mode=True,
        gpu_memory_utilization=0.7,
        tensor_parallel_size=gpus,
    )
    assert (loaded["enable_sleep_mode"], loaded["gpu_memory_utilization"]) == (True, 0.7)
    context, sampling = Context(Prompt(messages=()), (), (5, 17)), Sampling()
    await policy.generator.generate(context, sampling)  # an engine that is not trained never rests
    del asked[:-1]
    for _ in range(2):
        await policy.refresh()
        await policy.generator.generate(context, sampling)
        await policy.rest()
        with pytest.raises(GeneratorFailed, match="sleeps"):
            await policy.generator.generate(context, sampling)
    await policy.close()
    sync = {1: ["end_with", "begin_weights", "take_weight", "end_weights"], 2: ["end_with", "reload_from"]}[
        gpus
    ]
    first = ["empty torch's cache", *sync, "empty torch's cache", "generate", "sleep at level 2"]
    woken = [first[0], "wake weights", *sync, first[0], "wake kv_cache", "generate", "sleep at level 2"]
    assert asked == ["generate", *first, *woken, "shutdown"]


@pytest.mark.slow
def test_an_engine_sleeps_before_the_trainer_takes_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer moves policy and reference there when it is built, before the first batch."""
    asked: list[str] = []

    def load(path: str, **settings: object) -> VllmGenerator:
        asked.append("load")
        return VllmGenerator(Recorder(asked), ChatEncoder(tokenizer_of_words()), name=path)

    monkeypatch.setattr(VllmGenerator, "load", load)
    tokenizer = tokenizer_of_words()
    config = CONFIG.model_copy(update={"vllm": {"enable_sleep_mode": True}})
    for trained in (True, False):
        with Engine(tiny_qwen(tokenizer, head_dim=HEAD), tokenizer, ENVIRONMENTS, config, trained=trained):
            asked.append("build the trainer")
    whole = ["load", "sleep at level 2", "build the trainer", "shutdown"]
    assert asked == [*whole, *(step for step in whole if "sleep" not in step)], "a measurement has no trainer"


@pytest.mark.parametrize(("gpus", "launched", "device"), [(8, "3", [3]), (8, None, None), (0, "3", None)])
def test_a_launched_process_samples_on_its_own_gpu(
    gpus: int, launched: str | None, device: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if launched is not None:
        monkeypatch.setenv("LOCAL_RANK", launched)
    assert own_device() == device


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
