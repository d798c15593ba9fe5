"""The rollout log contains every rollout as sampled, in rows that other tools and our commands read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from tests.training.conftest import ENVIRONMENTS, source
from tirjudge.cli import app
from tirjudge.storage.run_folder import RunFolder, read_lines
from tirjudge_environments import Message
from tirjudge_training.distributed.processes import ReadOnlyRunFolder
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.run import train_rl

CONFIG = RlConfig(steps=2, groups=4, samples=4, micro_batch=4, max_tokens=120, learning_rate=1e-3)


def halved(step: int, round_number: int, position: int) -> FormattedTask:
    """Return a task whose prompt has a lone surrogate, which JSON can store and UTF-8 cannot."""
    formatted = source(step, round_number, position)
    return FormattedTask(formatted.format, replace(formatted.task, prompt=(Message("user", "q\ud800"),)))


@pytest.fixture(scope="module")
def stage(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    with RunFolder(folder) as run:
        train_rl(
            tiny_model,
            run,
            CONFIG,
            environments=ENVIRONMENTS,
            source=halved,
            seed=1,
            say=lambda line: None,
        )
    (folder / "rollouts" / ".step-000002.parquet.new").write_bytes(b"PAR1 what a killed writer left")
    return folder


@pytest.fixture(scope="module")
def rows(stage: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    cache = str(tmp_path_factory.mktemp("cache"))
    return list(load_dataset(str(stage / "rollouts"), split="train", cache_dir=cache))


def test_every_rollout_is_a_row(stage: Path, rows: list[dict[str, Any]]) -> None:
    """The log has the dialogues of episodes.jsonl, in the same order."""
    names = sorted(path.name for path in (stage / "rollouts").glob("*.parquet"))
    assert names == ["step-000000.parquet", "step-000001.parquet"]
    dialogues = [
        (episode["step"], episode["id"], one["view"], one["sample"], one["reward"]["total"], one["stop"])
        for episode in read_lines(stage / "episodes.jsonl")
        for one in episode["trajectories"]
    ]
    columns = ("step", "id", "view", "sample", "reward", "stop")
    assert [tuple(row[column] for column in columns) for row in rows] == dialogues
    assert {row["replacement"] for row in rows} == {False, True}


def test_a_row_has_the_tokens_as_they_were_sampled(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert len(row["completion_ids"]) == len(row["mask"]) == len(row["logprobs"])
        sampled = [logprob for logprob, own in zip(row["logprobs"], row["mask"], strict=True) if own]
        assert sampled
        assert all(logprob < 0 for logprob in sampled)
        assert (0 in row["mask"]) == ("```output" in row["completion"]), (
            "only tokens of the sandbox may be masked"
        )
        assert row["prompt_ids"]
        assert {part["name"] for part in row["parts"]} >= {"correct", "format", "tool"}


def test_data_inspect_reads_them(stage: Path, rows: list[dict[str, Any]]) -> None:
    ran = CliRunner().invoke(app, ["data", "inspect", str(stage / "rollouts")])
    assert ran.exit_code == 0, ran.stderr
    assert f"{len(rows):,}" in ran.stdout
    assert "tir-pairwise" in ran.stdout


def test_data_inspect_prints_json(tmp_path: Path) -> None:
    pair = {"id": "a", "prompt": "Name a prime.", "responses": ["2", "4 or 6"], "label": 0, "domain": "math"}
    rows = [pair, pair | {"id": "b", "label": 1}, pair | {"id": "c", "responses": "2"}]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ran = CliRunner().invoke(app, ["data", "inspect", str(tmp_path / "rows.jsonl"), "--json"])
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["rows"], found["domains"]) == (1, 2, {"math": 2})
    assert found["labels"] == [
        {"responses": 2, "label": 0, "rows": 1},
        {"responses": 2, "label": 1, "rows": 1},
    ]
    # Three words of the prompt and four of the responses.
    assert found["words"]["100 %"] == 7
    assert list(found["faults"].values()) == [1]


def test_the_other_processes_write_nothing(tmp_path: Path) -> None:
    ReadOnlyRunFolder(tmp_path).write("rollouts/step-000000.parquet", b"")
    assert not list(tmp_path.iterdir())
