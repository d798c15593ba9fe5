"""verl's own trainer with our configuration: its validation, and two steps on the CPU with Ray and FSDP2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import torch
import typer
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from ray.cluster_utils import Cluster
from safetensors.torch import load_file
from typer.testing import CliRunner
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from tests.tirjudge.judge_server import judge_serving
from tests.training.launch.judged_pairs import MINI, write_recipe
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.storage.durable_files import RunFolder
from tirjudge_environments import Context
from tirjudge_training.launch import verl_stage
from tirjudge_training.launch.cli import launch
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.context import context, data_of

ROOT = Path(__file__).parents[3]
ON_CPU = (
    "actor_rollout_ref.rollout.name=transformers",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.actor.use_torch_compile=false",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=false",
    "actor_rollout_ref.ref.fsdp_config.dtype=float32",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=false",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
)
"""Settings of verl that leave out what needs a GPU, and start fewer processes than a cluster gets."""
TRUTHS = ("Sirius", "Canopus", "Arcturus", "Vega")


def run(recipe: Path, folder: Path, *words: str) -> Any:
    app = typer.Typer()
    app.command()(launch)
    given = ["verl", "--recipe", str(recipe), "--output", str(folder), "--gpus-per-node", "1"]
    return CliRunner().invoke(app, [*given, *words])


@pytest.mark.parametrize("backend", ["fsdp2", "megatron"])
def test_verl_accepts_the_configuration(backend: str, tmp_path: Path) -> None:
    """hydra composes it from verl's own files, verl validates it, and its classes take every key."""
    written = run(write_recipe(tmp_path), tmp_path / "run", "--backend", backend, "--dry-run")
    assert written.exit_code == 0, written.stderr
    with initialize_config_dir(str(tmp_path / "run/rl-0/verl"), version_base=None):
        config = compose("config")
    assert config.actor_rollout_ref.actor.strategy == backend
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert need_reference_policy(config)
    OmegaConf.resolve(config)
    for part in (
        *(config.actor_rollout_ref[name] for name in ("actor", "rollout", "model")),
        config.algorithm,
    ):
        omega_conf_to_dataclass(part)
    assert config.actor_rollout_ref.rollout.prompt_length == 1024
    assert config.actor_rollout_ref.rollout.response_length == 160


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Ray cluster of this machine that claims to have a GPU, whose processes take the CPU for one."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "tests.training.launch.verl_on_cpu")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Ray ends workers when other processes have filled the machine's memory.
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    sizes = {"num_cpus": 16, "num_gpus": 1, "object_store_memory": 200 * 2**20}
    nodes = Cluster(initialize_head=True, head_node_args=sizes)
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()


@pytest.mark.timeout(1500)
def test_verl_trains_a_stage_that_the_next_stages_continue_from(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's trainer, agent loops, replay buffer, FSDP2, checkpoints and model merger are real."""
    monkeypatch.setattr(verl_stage, "NEEDED", {"verl": "verl", "transfer_queue": "TransferQueue"})
    recipe, folder = write_recipe(tmp_path), tmp_path / "run"
    stage = folder / "rl-0"
    rollouts = stage / "verl" / "rollouts"
    overrides = [
        word for key in (*ON_CPU, f"trainer.rollout_data_dir={rollouts}") for word in ("--override", key)
    ]
    done = run(recipe, folder, "--address", cluster, *overrides)
    assert done.exit_code == 0, done.stderr
    result = json.loads((stage / "done.json").read_text())
    assert (result["steps"], result["trainer"]) == (2, "verl 0.9.1")
    assert result["seconds"] > 0

    # Every view of a task is a group of its own: four rollouts of it, each with the reward of its own answer.
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in map(json.loads, (rollouts / "1.jsonl").read_text().splitlines()):
        # verl names the empty rollouts with which it fills a batch up pad...
        if not row["uid"].startswith("pad"):
            groups.setdefault(row["uid"].rsplit("_", 2)[0], []).append(row)
    assert {len(rows) for rows in groups.values()} == {4}
    views = [name for name in groups if "_" in name]
    assert views
    assert len(views) % 2 == 0
    assert all(0 <= row["score"] <= 1 for rows in groups.values() for row in rows)

    # The model is what verl trained, as a folder of ours, and was trained from the recipe's.
    before, after = (load_file(path / "model.safetensors") for path in (MINI, stage / "model"))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name].bfloat16(), after[name].bfloat16()) for name in before)
    assert json.loads((stage / "model" / "tirjudge.json").read_text())["prompts"] == "mini"

    # The selection takes the best validated step, whose snapshot is kept.
    rows = [json.loads(line) for line in (stage / "validation.jsonl").read_text().splitlines()]
    assert [(row["step"], row["n"]) for row in rows] == [(1, 2), (2, 2)]
    config = load(Recipe, str(recipe))
    stages = {one.name: one for one in pipeline_of(config).stages}
    with RunFolder(folder / "select-0") as selected:
        stages["select-0"].work(selected, context(config, data_of(config), folder, print))
    assert (folder / "select-0" / "model" / "model.safetensors").is_file()

    # Nothing is left to do before the rounds' other stages.
    again = run(recipe, folder)
    assert again.exit_code == 2
    assert "rl-1 starts from the model of sft-1, which is not done" in again.stderr


@pytest.mark.timeout(1500)
def test_verls_trainer_shows_a_served_judge_the_ground_truth(cluster: str, tmp_path: Path) -> None:
    """Two steps of GRPO on a policy's own answers, with the reward function that docs/serve.md names."""
    shown: list[tuple[str, int]] = []

    def judge(context: Context) -> str:
        text = context.prompt.messages[-1].content
        (truth,) = (name for name in TRUTHS if name in text)
        shown.append((truth, 1 + sum(map(ord, text)) % 9))
        return f"<score>{shown[-1][1]}</score>"

    rows = [
        {
            "data_source": "stars",
            "prompt": [{"role": "user", "content": f"Which star is number {number}?"}],
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"question": f"Which star is number {number}?", "index": number},
        }
        for number, truth in enumerate(TRUTHS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    rollouts = tmp_path / "rollouts"
    with judge_serving(ScriptedGenerator(judge), tools=False) as server:
        settings = {
            "data.train_files": tmp_path / "rows.parquet",
            "data.val_files": tmp_path / "rows.parquet",
            "data.train_batch_size": 2,
            "data.max_prompt_length": 64,
            "data.max_response_length": 16,
            "data.shuffle": "false",
            "actor_rollout_ref.model.path": MINI,
            "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
            "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
            "actor_rollout_ref.actor.strategy": "fsdp2",
            "actor_rollout_ref.rollout.n": 4,
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
            "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
            "algorithm.adv_estimator": "grpo",
            "algorithm.use_kl_in_reward": "false",
            "trainer.nnodes": 1,
            "trainer.n_gpus_per_node": 1,
            "trainer.total_training_steps": 2,
            "trainer.total_epochs": 1,
            "trainer.save_freq": -1,
            "trainer.test_freq": -1,
            "trainer.val_before_train": "false",
            "trainer.logger": "[console]",
            "trainer.default_local_dir": tmp_path / "checkpoints",
            "trainer.rollout_data_dir": rollouts,
            "+ray_kwargs.ray_init.address": cluster,
            "reward.custom_reward_function.path": "pkg://tirjudge.serve.verl",
            "reward.custom_reward_function.name": "compute_score",
            "+reward.custom_reward_function.reward_kwargs.url": server.url,
            "+reward.custom_reward_function.reward_kwargs.reference_key": "ground_truth",
        }
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *ON_CPU]
        command += [f"{key}={value}" for key, value in settings.items()]
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    assert done.returncode == 0, done.stdout[-4000:]
    written = [
        json.loads(line) for step in (1, 2) for line in (rollouts / f"{step}.jsonl").read_text().splitlines()
    ]
    # The judge saw the ground truth of each sample, and verl trained on the score that it gave.
    assert {truth: sum(name == truth for name, _ in shown) for truth in TRUTHS} == dict.fromkeys(TRUTHS, 4)
    found = sorted((row["gts"], row["score"]) for row in written)
    assert found == sorted((truth, float(score)) for truth, score in shown)
