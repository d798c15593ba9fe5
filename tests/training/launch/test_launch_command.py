"""`tirjudge launch verl`: configuration and rows, bad input, and a run folder that both trainers share."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from tests.training.launch.judged_pairs import MINI, write_recipe
from tirjudge_environments.adapters.dialogues import read_stored_task
from tirjudge_training.cli import train
from tirjudge_training.launch import verl_stage
from tirjudge_training.launch.cli import launch
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.context import data_of

LISTS = [
    {"environment": "tir-listwise", "prompt": f"List {n}", "responses": ["1", "2", "3"], "label": "B"}
    for n in range(20)
]
SINGLES = [
    {"environment": "tir-pointwise", "prompt": f"Single {n}", "responses": ["1", "2"], "label": "A"}
    for n in range(60)
]
PAIRS = [{**row, "environment": "tir-pairwise", "prompt": f"Pair {n}"} for n, row in enumerate(SINGLES)]


def run(command: Any, *words: str, code: int | None = None) -> Result:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, words)
    assert code is None or done.exit_code == code, done.output
    return done


def dry(
    tmp_path: Path, recipe: str, *words: str, rows: Any = (*SINGLES, *PAIRS, *LISTS), code: int | None = None
) -> Result:
    """Write configuration and rows of a shipped recipe, with the miniature as the model."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--recipe", recipe, "--set", f"model.base={MINI}", "--set", f"data.train={file}"]
    return run(launch, "verl", *given, "--output", str(tmp_path / "run"), "--dry-run", *words, code=code)


def configuration(tmp_path: Path, stage: str = "rl-0") -> Any:
    return yaml.safe_load((tmp_path / "run" / stage / "verl" / "config.yaml").read_text())


def test_tir_judges_values_reach_verl(tmp_path: Path) -> None:
    """The values are those that TIR-Judge prints in sections 4.2 and 5.1, under verl's names."""
    done = dry(tmp_path, "tir-judge-zero-8b", "--nodes", "2", "--address", "head:6379", code=0)
    folder = tmp_path / "run" / "rl-0" / "verl"
    assert done.stdout.split()[1:] == [
        *("-m", "verl.trainer.main_ppo", "--config-path", str(folder), "--config-name", "config")
    ]
    config = configuration(tmp_path)
    actor, rollout = (config["actor_rollout_ref"][name] for name in ("actor", "rollout"))
    assert (actor["optim"]["lr"], actor["clip_ratio_low"], actor["clip_ratio_high"]) == (1e-6, 0.2, 0.3)
    assert (actor["use_kl_loss"], actor["kl_loss_coef"], actor["loss_agg_mode"]) == (True, 0.01, "token-mean")
    assert (rollout["n"], rollout["max_model_len"]) == (8, 4096 + 8192)
    assert (config["data"]["max_prompt_length"], config["data"]["max_response_length"]) == (4096, 8192)
    assert config["algorithm"]["filter_groups"] == {"enable": True, "metric": "teaches"}
    assert config["algorithm"]["rollout_correction"] == {"rollout_is": "token", "rollout_is_threshold": 2.0}
    assert (config["trainer"]["nnodes"], config["trainer"]["n_gpus_per_node"]) == (2, 8)
    assert config["ray_kwargs"]["ray_init"]["address"] == "head:6379"
    # 5 % of each judge's prompts are held back: 57 single rows of two views each, 57 pairs and 19 lists. A
    # batch of 128 groups is 128 * 133 / 190 rows; two passes of 190 groups take three batches.
    assert config["data"]["train_batch_size"] == 90
    assert config["trainer"]["total_training_steps"] == 3
    # One optimizer step per batch, even if every row of it has two groups.
    assert actor["ppo_mini_batch_size"] == 180
    loops = {loop["name"]: loop for loop in yaml.safe_load((folder / "agent_loops.yaml").read_text())}
    assert loops.keys() == {"tir-pointwise", "tir-pairwise", "tir-listwise"}
    settings = loops["tir-pairwise"]["settings"]
    assert (settings["tool_calls"], settings["tokens"], settings["sandbox"]) == (3, 8192, "docker")
    assert settings["options"]["bindings"] is True


def test_the_rollouts_of_a_step_fill_every_gpu(tmp_path: Path) -> None:
    """verl fills a batch up to the least common multiple of both numbers, which would add optimizer steps."""
    dry(tmp_path, "tir-judge-zero-8b", "--nodes", "12", "--address", "head:6379", code=0)
    groups = configuration(tmp_path)["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"]
    assert (groups * 8) % (12 * 8) == 0
    assert 180 <= groups < 180 + 12


def test_both_commands_store_the_same_type_of_weights(tmp_path: Path) -> None:
    assert dry(tmp_path, "tir-judge-zero-8b", "--set", "model.dtype=auto").exit_code == 0
    stored = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert stored["model"]["dtype"] == "float32", "whole weights are trained"


def test_rows_come_in_our_trainers_order_and_hold_whole_tasks(tmp_path: Path) -> None:
    assert dry(tmp_path, "tir-judge-zero-8b", "--set", "seed=3").exit_code == 0
    file = tmp_path / "rows.jsonl"
    values = [f"model.base={MINI}", f"data.train={file}", "seed=3"]
    recipe = load(Recipe, "tir-judge-zero-8b", values)
    seed = yaml.safe_load((tmp_path / "run/rl-0/verl/agent_loops.yaml").read_text())[0]["settings"]["seed"]
    source = data_of(recipe).source(seed, 266)
    written = pyarrow.parquet.read_table(tmp_path / "run/rl-0/verl/train.parquet").to_pylist()
    drawn = [source(position) for position in range(266)]  # type: ignore[call-arg]
    assert [read_stored_task(row["extra_info"]["task"]) for row in written] == [one.task for one in drawn]
    assert [row["agent_name"] for row in written] == [one.format for one in drawn]
    heldout = pyarrow.parquet.read_table(tmp_path / "run/rl-0/verl/validation.parquet").to_pylist()
    assert not {row["prompt"][0]["content"] for row in heldout} & {
        row["prompt"][0]["content"] for row in written
    }
    assert len(heldout) == 3 + 3 + 1


def test_only_screened_rows_reach_verl_and_only_after_the_screening(tmp_path: Path) -> None:
    words = [
        "--set",
        "rl.screen.samples=8",
        "--set",
        "rl.epochs=",
        "--set",
        "rl.steps=1",
        "--set",
        "method=rl",
    ]
    words += ["--set", "rl.groups=4"]
    early = dry(tmp_path, "tir-judge-zero-8b", *words, rows=PAIRS, code=2)
    assert "rl trains on the rows that screen leaves, which is not done" in early.stderr
    screened = tmp_path / "run" / "screen"
    screened.mkdir(parents=True)
    # Every second row is always right.
    rows = [{"id": str(n), "samples": 8, "right": 8 if n % 2 else 4} for n in range(1, len(PAIRS) + 1)]
    (screened / "screened.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (screened / "done.json").write_text("{}")
    numbered = [{**row, "id": str(n)} for n, row in enumerate(PAIRS, 1)]
    dry(tmp_path, "tir-judge-zero-8b", *words, rows=numbered, code=0)
    written = pyarrow.parquet.read_table(tmp_path / "run/rl/verl/train.parquet").to_pylist()
    assert written
    assert all(int(read_stored_task(row["extra_info"]["task"]).id) % 2 == 0 for row in written)


def test_further_tools_reach_the_agent_loops(tmp_path: Path) -> None:
    dry(tmp_path, "tir-judge-zero-8b", "--set", 'rl.tools.servers=["tests"]', code=0)
    loops = yaml.safe_load((tmp_path / "run/rl-0/verl/agent_loops.yaml").read_text())
    assert [loop["settings"]["tools"]["servers"] for loop in loops] == [["tests"]] * 3


def test_a_falling_learning_rate_is_megatrons(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "environment"} for row in PAIRS]
    refused = dry(tmp_path, "j1-70b", rows=rows, code=2)
    assert "rl.decay: verl lowers the learning rate linearly with Megatron only" in refused.stderr
    words = ["--backend", "megatron", "--set", "rl.groups=8", "--set", "rl.optimizer_steps=1"]
    # The paper's choice on RewardBench needs its rows.
    missing = dry(tmp_path, "j1-70b", *words, rows=rows)
    assert "data/rewardbench.jsonl" in missing.stderr
    assert "--set data.validation=0.05" in missing.stderr
    words += ["--set", "data.validation=0.2"]
    assert dry(tmp_path, "j1-70b", *words, rows=rows).exit_code == 0
    config = configuration(tmp_path, "rl")
    assert "override model_engine" in config["defaults"][1]
    optimizer = config["actor_rollout_ref"]["actor"]["optim"]
    # J1-70B: from 1e-6 down to 3e-7, without KL (arXiv 2505.10320, App. B).
    assert (optimizer["lr_decay_style"], optimizer["lr"], optimizer["min_lr"]) == ("linear", 1e-6, 3e-7)
    assert config["actor_rollout_ref"]["actor"]["use_kl_loss"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "judgelrm-7b"], "rl.sigma: verl divides by n - 1"),
        (
            [
                *("--recipe", "tir-judge-zero-8b", "--set", "rl.vllm.enable_sleep_mode=false"),
                *("--set", "rl.off_policy=true", "--set", "rl.importance_cap=2.0"),
            ],
            "rl.off_policy: this path samples with the latest weights",
        ),
        (["--recipe", "rationale-14b"], "meta_judge: verl's agent loop asks no other model"),
        (["--recipe", "tir-judge-zero-8b", "--nodes", "2"], "give its --address HOST:PORT"),
    ],
)
def test_a_recipe_that_verl_cannot_train_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    refused = run(launch, "verl", *words, "--output", str(tmp_path / "run"))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("tirjudge launch: ")
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"verl": "0.9.1", "trl": "1.16.0"}, "verl 0.9.1 fails beside trl 1.16.0"),
        ({"verl": "0.9.1", "trl": "0.27.0"}, "verl's trainer needs TransferQueue, vllm"),
    ],
)
def test_an_environment_without_verl_is_one_line(
    found: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl_stage, "find_spec", found.get)
    monkeypatch.setattr(verl_stage, "version", found.__getitem__)
    refused = run(launch, "verl", "--recipe", str(write_recipe(tmp_path)), "--output", str(tmp_path / "run"))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--address", "127.0.0.1:1"], 2, "--address 127.0.0.1:1: no Ray cluster answers there"),
        ([], 1, "training takes 1 x 8 GPUs (--nodes, --gpus-per-node), and this machine has 0"),
    ],
)
def test_machines_that_are_not_there_are_one_line(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verl_stage, "check_installed", lambda: None)
    recipe = str(write_recipe(tmp_path))
    refused = run(launch, "verl", "--recipe", recipe, "--output", str(tmp_path / "run"), *words)
    assert (refused.exit_code, refused.stderr.count("\n")) == (code, 1)
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


def test_rows_and_machines_that_are_too_few_are_refused_with_a_number(tmp_path: Path) -> None:
    # The miniature has 918,912 parameters, of 16 bytes each in training and 2 in the reference: 16.5 MB. A
    # node has 8 GPUs of 1 MB.
    refused = dry(tmp_path, "tir-judge-zero-8b", "--set", "rates.memory=1e6")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "--nodes 3 or more" in refused.stderr
    # One of five rows is held back; two passes over the others are 8 rows of two groups each, and a batch of
    # 128 groups has 64 rows.
    refused = dry(tmp_path, "tir-judge-zero-8b", rows=SINGLES[:5])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "data.train: 8 rows are fewer than a batch of 64: lower rl.groups" in refused.stderr


@pytest.mark.slow
def test_the_other_stages_continue_from_a_stage_of_verls(tmp_path: Path) -> None:
    """`tirjudge train` selects verl's best step, samples from it, learns, and leaves the next RL to verl."""
    recipe, folder = str(write_recipe(tmp_path)), tmp_path / "run"
    first = run(train, "--recipe", recipe, "--output", str(folder))
    assert (first.exit_code, first.stderr.count("\n")) == (1, 1)
    assert "tirjudge train: rl-0 is trained by verl: run `tirjudge launch verl`" in first.stderr
    stage = folder / "rl-0"
    for step in (1, 2):
        shutil.copytree(MINI, stage / "snapshots" / f"step-{step}")
    shutil.copytree(MINI, stage / "model")
    validated = [{"step": step, "correct": 2 - step, "n": 2} for step in (1, 2)]
    (stage / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in validated))
    result = {"steps": 2, "seconds": 9.0, "trainer": "verl 0.9.1"}
    (stage / "done.json").write_text(json.dumps(result))
    second = run(train, "--recipe", recipe, "--output", str(folder), code=1)
    assert "rl-1 is trained by verl" in second.stderr.splitlines()[-1]
    assert json.loads((folder / "select-0" / "done.json").read_text())["best"] == 1
    assert (folder / "sft-1" / "model" / "model.safetensors").is_file()
    # The next command of launch takes over there.
    due = verl_stage.due(pipeline_of(load(Recipe, recipe)), folder)
    assert due is not None
    assert (due.name, due.start) == ("rl-1", "sft-1")
