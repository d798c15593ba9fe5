"""Batches without any row in the loss: the weights stay, the log says why, and no model is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.rows import every
from tests.training.conftest import train_and_save
from tests.training.one_batch import ONE_BATCH
from tests.training.train_command import train
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Environment, Reward
from tirjudge_training.rl import training_loop
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.rollout_engine import Engine

STEPS, GROUPS = 5, 4
CONFIG = RlConfig(
    steps=STEPS,
    groups=GROUPS,
    samples=4,
    micro_batch=8,
    beta=0.0,
    learning_rate=1e-3,
    max_tokens=120,
    replacement_rounds=0,
    checkpoint_every=1,
    keep_checkpoints=STEPS,
)


class AllEqual:
    """A judge whose verdicts are all right, or all wrong."""

    def __init__(self, environment: Environment, right: bool) -> None:
        self._environment, self._right = environment, right

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def score(self, group: Any, answers: Any) -> Any:
        found = {"total": float(self._right), "right": self._right, "teaches": self._right}
        scores = self._environment.score(group, answers)
        return [tuple(replace(s, **found) if isinstance(s, Reward) else s for s in row) for row in scores]


@pytest.mark.parametrize("right", every(2, [True, False]))
def test_a_batch_without_a_row_in_the_loss_leaves_the_weights_alone(
    right: bool, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's momentum of the first batch would move them in the four batches after it."""
    steps: list[int] = []

    class Spoilt(Engine):
        def rollouts(self, seed: int, *config: Any) -> Any:
            steps.append(seed)
            if len(steps) == 2:
                judges = self.environments.items()
                self.environments = {name: AllEqual(judge, right) for name, judge in judges}
            return super().rollouts(seed, *config)

    monkeypatch.setattr(training_loop, "Engine", Spoilt)
    said: list[str] = []
    train_and_save(tiny_model, tmp_path, CONFIG, say=said.append)
    rows = list(read_lines(tmp_path / "metrics.jsonl"))
    assert [row["steps/skipped"] for row in rows] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert [row["groups/in_loss"] > 0 for row in rows] == [True, False, False, False, False]
    start, first, last = (
        load_file(folder / "model.safetensors")
        for folder in (tiny_model, tmp_path / "checkpoints" / "checkpoint-1", tmp_path / "model")
    )
    assert any(not first[name].equal(start[name]) for name in start)
    assert all(first[name].equal(last[name]) for name in last)
    kind = "all_right" if right else "all_wrong"
    assert all(row[f"groups/{kind}"] == GROUPS for row in rows[1:])
    (line,) = [one for one in said if "nothing to learn" in one]
    assert line.startswith("rl 4/5: nothing to learn from 3 batches in a row")
    assert f"({3 * GROUPS} {kind.replace('_', ' ')})" in line


@pytest.mark.slow
def test_a_run_with_nothing_in_any_loss_ends_without_a_model(roomy_model: Path, tmp_path: Path) -> None:
    """In eight tokens there is no verdict, so that every rollout is wrong; one of the rows is held back."""
    data = tmp_path / "rows.jsonl"
    lines = ({"prompt": f"q{n}", "responses": ["a", "b"], "label": 0} for n in range(4))
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--recipe", "rm-r1-distilled-7b", "--model", str(roomy_model), "--data", str(data)]
    for setting in (*ONE_BATCH, "model.enable_thinking=false", "rl.filter=correctness"):
        words += ["--set", setting]
    said = []
    for _ in range(2):  # The same command comes to the same end.
        done = train(*words, "--output", str(tmp_path / "run"))
        assert done.exit_code == 1
        said.append(done.stderr.splitlines()[-1])
        assert "tirjudge train: rl: nothing to learn from 2 batches in a row" in said[-1]
        assert "(3 all wrong)" in said[-1]
        assert said[-1].endswith(f"no model is written, and {roomy_model} is the one to use")
        assert not (tmp_path / "run" / "rl" / "model").exists()
    assert said[0] == said[1]
