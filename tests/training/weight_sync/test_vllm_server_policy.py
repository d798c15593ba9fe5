"""Training with a real vLLM server on a CPU, which gets the trainer's weights before every batch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file

from tests.tirjudge.judge_command import command
from tests.training.conftest import ENVIRONMENTS, source, tiny_qwen, tokenizer_of_words
from tests.training.miniature import MINI, assignments
from tests.vllm_server import HEAD, kill, serving
from tirjudge.generation import GeneratorFailed, Sampling
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Context, Prompt
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.training_loop import train_rl
from tirjudge_training.weight_sync.vllm_servers import EXTENSION, VllmServerConfig, VllmServerPolicy

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.timeout(600),
]
CONFIG = {
    "steps": 3,
    "groups": 2,
    "samples": 4,
    "filter": "none",
    "max_tokens": 60,
    "learning_rate": 1e-2,
    "generator": "vllm-server",
    "importance_cap": 2.0,
    "entropy_bonus": 0.1,  # random weights earn no reward
}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
TAKES_WEIGHTS = ("--worker-extension-cls", EXTENSION)
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}


def main(model: Path, folder: Path, url: str) -> None:
    """Train in all launched processes, which share one server."""
    processes = Processes.launched()
    with processes.folder(folder) as run:
        trained = train_rl(
            model,
            run,
            RlConfig.model_validate(CONFIG | {"server": {"urls": (url,)}}),
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=lambda line: None,
            processes=processes,
        )
        if processes.rank == 0:
            trained.save_pretrained(folder / "model")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, tokenizer = tmp_path_factory.mktemp("model"), tokenizer_of_words()
    tiny_qwen(tokenizer, head_dim=HEAD).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with serving(model, *TAKES_WEIGHTS, **DEVELOPMENT) as (process, url):
        yield process, url


def test_samples_are_the_trainers_own_after_every_step_in_every_process(
    model: Path, server: tuple[subprocess.Popen[bytes], str], tmp_path: Path
) -> None:
    """A stale tied output layer or KV cache would show as a gap between the logprobs."""
    folder, url = tmp_path / "run", server[1]
    subprocess.run([sys.executable, *TORCHRUN, __file__, str(model), str(folder), url], check=True)
    before, after = (load_file(one / "model.safetensors") for one in (model, folder / "model"))
    embedding = "model.embed_tokens.weight"
    assert (after[embedding] - before[embedding]).abs().max() > 1e-3, "the weights must have changed"
    metrics = list(read_lines(folder / "metrics.jsonl"))
    assert len(metrics) == CONFIG["steps"]
    assert all(0 < row["sampler_gap"] < 1e-4 for row in metrics), "the largest gap of all processes"
    machine = json.loads((folder / "machine.json").read_text())
    assert (machine["sampler"], machine["sampling"]) == ("ServedGenerator", "float32")
    assert httpx.get(f"{url}/weight_info").json()["weight_version"] != "default"


async def test_a_restarted_server_is_detected_and_gets_the_weights_with_the_next_batch(
    model: Path, server: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, url = server
    tokenizer = tokenizer_of_words()
    network = tiny_qwen(tokenizer, head_dim=HEAD)
    context, greedy = Context(Prompt(messages=()), (), (5, 17, 30)), Sampling(temperature=0.0, max_tokens=8)
    policy = VllmServerPolicy(network, tokenizer, "policy", config=VllmServerConfig(urls=(url,)))
    before = await policy.generator.generate(context, greedy)
    kill(process)
    with serving(model, *TAKES_WEIGHTS, port=httpx.URL(url).port, **DEVELOPMENT):
        with pytest.raises(
            GeneratorFailed, match="does not hold the weights that it was given: it was restarted"
        ):
            await policy.generator.generate(context, greedy)
        with torch.no_grad():
            for weight in network.parameters():
                weight.neg_()
        await policy.refresh()
        after = await policy.generator.generate(context, greedy)
        await policy.close()
    assert before.token_ids != after.token_ids, "the server must have loaded the weights"


def test_a_run_does_not_start_if_its_server_cannot_load_weights(model: Path, tmp_path: Path) -> None:
    words = ["train", "--recipe", MINI, "--output", str(tmp_path / "run")]
    words += [word for one in assignments() for word in ("--set", one)]
    words += ["--set", "rl.generator=vllm-server", "--set"]
    with serving(model) as (_, url):
        ended = command(*words, f'rl.server.urls=["{url}"]')
    assert ended.exit_code == 2
    assert "no route /server_info: start it with VLLM_SERVER_DEV_MODE=1" in ended.stderr
    assert not (tmp_path / "run").exists()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
