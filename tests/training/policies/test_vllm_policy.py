"""Training with the real vLLM on a CPU, which gets the trainer's weights before every rollout."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.training.conftest import ENVIRONMENTS, source, tiny_qwen, tokenizer_of_words
from tirjudge.storage.run_folder import read_lines
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.policies.vllm import can_stream, own_device
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.run import train_rl

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
    processes = Processes.launched()
    with processes.folder(folder) as run:
        trained = train_rl(
            start,
            run,
            CONFIG,
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=lambda line: None,
            processes=processes,
        )
        if processes.rank == 0:
            trained.save_pretrained(folder / "model")


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
