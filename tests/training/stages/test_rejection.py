"""Rejection sampling keeps right rollouts, survives a kill, and SFT learns from what it kept."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import ENVIRONMENTS, source
from tests.training.forked import Forked
from tests.trajectories import bare_trajectory
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import (
    Call,
    Environment,
    Episode,
    JudgeTask,
    Message,
    Reward,
    RunCode,
    Segment,
    Trajectory,
    Unscored,
)
from tirjudge_environments.types import By, Refused
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.rl.dynamic_sampling import FormattedTask, ScoredRollouts
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.run.context import data_of
from tirjudge_training.sft import IGNORED, Sample, SftConfig
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.rejection import Rejection, RejectionConfig, chosen
from tirjudge_training.stages.sft import FineTuning, kept_samples

PROMPTS = 24
ROLLOUT = RolloutConfig(max_tokens=120)


class Tasks:
    """A user's data: pairs and single responses that the tiny model judges correctly now and then."""

    def __init__(self) -> None:
        self.environments: Mapping[str, Environment] = ENVIRONMENTS

    def source(
        self, groups: int, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None
    ) -> TaskSource:
        return source

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        return [source(0, 0, position) for position in range(n or PROMPTS)]

    def validation(self, n: int) -> list[FormattedTask]:
        return [source(1, 0, position) for position in range(n)]

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        return []


def run(folder: Path, model: Path, say: Any = lambda line: None) -> Run:
    return Run(folder, str(model), Tasks(), say)


def sample(model: Path, folder: Path, kill_at: int = 0) -> dict[str, Any]:
    """Run the stage, killed as soon as `kill_at` prompts are stored."""

    class Fragile(RunFolder):
        def append(self, name: str, *rows: Mapping[str, Any]) -> None:
            super().append(name, *rows)
            if len(list(self.read(name))) == kill_at:
                signal.raise_signal(signal.SIGKILL)

    stage = Rejection(name="rejection-1", seed=5, start=None, config=RejectionConfig(), rollout=ROLLOUT)
    with Fragile(folder / stage.name) as own:
        return stage.work(own, run(folder, model))


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted stage."""
    folder = tmp_path_factory.mktemp("whole")
    sample(tiny_model, folder)
    return folder


def samples(folder: Path) -> list[dict[str, Any]]:
    return sorted(read_lines(folder / "rejection-1" / "samples.jsonl"), key=lambda one: one["index"])


@pytest.mark.slow
def test_kept_rollouts_have_the_full_reward_in_every_view(whole: Path) -> None:
    rows = samples(whole)
    assert [one["index"] for one in rows] == list(range(PROMPTS))
    assert all(len(one["rewards"]) == 4 for one in rows), "G = 4"
    assert {1.0, 0.1, 0.0} <= {reward for one in rows for views in one["rewards"] for reward in views}
    for one in rows:
        full = [views for views in one["rewards"] if all(reward == 1.0 for reward in views)]
        assert bool(one["kept"]) is bool(full), "one rollout per prompt, if any has the full reward"
        if one["kept"]:
            trajectories = one["episode"]["trajectories"]
            assert len(one["kept"]) == len(trajectories) == (2 if one["format"] == "tir-pointwise" else 1)
            assert all(t["reward"]["total"] == 1.0 for t in trajectories)
            assert all(p["status"] == "ok" for t in trajectories for p in t["programs"])


def test_the_labels_are_the_models_own_tokens(whole: Path, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    programs = 0
    for one in samples(whole):
        for trajectory, sample in zip(
            one["episode"]["trajectories"] if one["kept"] else [], one["kept"], strict=True
        ):
            labelled = tokenizer.decode([label for label in sample["labels"] if label != IGNORED])
            own = [segment["text"] for segment in trajectory["segments"] if segment["by"] == "model"]
            assert labelled.removesuffix(tokenizer.eos_token) == "".join(own)
            assert "```output" in tokenizer.decode(sample["ids"]) or not trajectory["programs"]
            programs += len(trajectory["programs"])
    assert programs


@pytest.mark.slow
def test_a_killed_stage_resumes_without_sampling_a_prompt_twice(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    assert Forked(sample, tiny_model, tmp_path, 9).wait() == -signal.SIGKILL
    first = samples(tmp_path)
    assert len(first) == 9
    assert sample(tiny_model, tmp_path) == sample(tiny_model, whole), "the counts of an uninterrupted run"
    rows = samples(tmp_path)
    assert [one["index"] for one in rows] == list(range(PROMPTS))
    assert [one["kept"] for one in rows] == [one["kept"] for one in samples(whole)]
    assert first == [one for one in rows if one["index"] in {done["index"] for done in first}]


def test_sft_learns_from_the_kept_rollouts_in_the_order_of_the_prompts(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    rows = [one for one in samples(whole) for one in one["kept"]]
    assert [list(one.ids) for one in kept_samples(whole / "rejection-1")] == [one["ids"] for one in rows]
    shortest = sorted(len(one["ids"]) for one in rows)
    config = SftConfig(batch=4, micro_batch=4, learning_rate=1e-3, max_tokens=shortest[-1] - 1)
    stage = FineTuning(
        name="sft-1", start=None, samples=("rejection-1",), prompts=None, drawn=0, config=config
    )
    with RunFolder(tmp_path / stage.name) as own:
        result = stage.work(own, run(whole, tiny_model))
    long = sum(length == shortest[-1] for length in shortest)
    assert (result["samples"], result["too_long"]) == (len(rows) - long, long)
    cut = FineTuning(
        **{**stage.model_dump(), "name": "cut", "config": config.model_copy(update={"cut": True})}
    )
    with RunFolder(tmp_path / cut.name) as own:
        assert cut.work(own, run(whole, tiny_model))["samples"] == len(rows)
    assert result["steps"] == -(-result["samples"] // config.batch)
    assert result["cpu_seconds"] > 0
    assert (tmp_path / "sft-1" / "model" / "model.safetensors").exists()


def test_a_sample_that_is_too_long_is_cut_behind_the_last_turn_that_fits() -> None:
    sample = Sample(tuple(range(9)), (IGNORED, 1, 2, IGNORED, IGNORED, 5, IGNORED, 7, 8))
    found = {tokens: sample.first_turns(tokens) for tokens in (2, 3, 5, 6, 8, 9)}
    lengths = {tokens: cut and (len(cut.ids), cut.labels[-1]) for tokens, cut in found.items()}
    assert lengths == {2: None, 3: (3, 2), 5: (3, 2), 6: (6, 5), 8: (6, 5), 9: (9, 8)}


@pytest.mark.parametrize(
    ("demonstrated", "key"), [(True, "warmup.sft.max_tokens"), (False, "sft.max_tokens")]
)
def test_samples_that_are_all_too_long_name_the_key_of_their_limit(
    demonstrated: bool, key: str, tmp_path: Path
) -> None:
    (tmp_path / "before").mkdir()
    sample = {"index": 0, "kept": [{"ids": [1, 2, 3], "labels": [IGNORED, 2, 3]}]}
    (tmp_path / "before" / "samples.jsonl").write_text(json.dumps(sample) + "\n")
    stage = FineTuning(
        name="after",
        samples=("before",),
        prompts=None,
        drawn=0,
        demonstrated=demonstrated,
        config=SftConfig(max_tokens=2),
    )
    with (
        RunFolder(tmp_path / stage.name) as own,
        pytest.raises(RuntimeError, match=f"after: all 1 samples are longer than {key}: raise it"),
    ):
        stage.work(own, run(tmp_path, tmp_path))


def trajectory(tokens: int, calls: int) -> Trajectory:
    """Return a trajectory with that many tokens of the model, and twice as many of the sandbox."""
    request = RunCode("print(1)")
    segments = (
        Segment(by=By.MODEL, text="", ids=(2,) * tokens, logprobs=(0.0,) * tokens),
        Segment(by=By.SANDBOX, text="", ids=(3,) * (200 - tokens)),
    )
    return bare_trajectory(prompt_ids=(1,), segments=segments, calls=(Call(request, Refused("")),) * calls)


def scored_rollouts(*episodes: tuple[int, int, float | None]) -> ScoredRollouts:
    task = JudgeTask(id="t", prompt=(Message("user", "q"),), candidates=("a", "b"), label=0)
    return ScoredRollouts(
        FormattedTask("pairs", task),
        tuple(Episode(task, i, (trajectory(n, calls),)) for i, (n, calls, _) in enumerate(episodes)),
        tuple(
            (Unscored("down") if r is None else Reward(r, {}, right=True, teaches=True),)
            for *_, r in episodes
        ),
        0,
    )


def test_the_shortest_or_the_one_with_the_fewest_calls_and_the_first_of_equals() -> None:
    """Only the model's own tokens count towards the length of a trajectory."""
    one = scored_rollouts((9, 0, 0.1), (30, 0, 1.0), (20, 2, 1.0), (20, 1, 1.0), (5, 0, None))
    assert chosen(one, RejectionConfig(keep="shortest")) == 2
    assert chosen(one, RejectionConfig(keep="fewest_calls")) == 1
    assert chosen(scored_rollouts((30, 1, 1.0), (20, 1, 1.0)), RejectionConfig(keep="fewest_calls")) == 1
    assert chosen(scored_rollouts((9, 0, 0.1), (9, 0, None)), RejectionConfig()) is None


@pytest.mark.slow
def test_the_plan_counts_the_dialogues_of_the_rows_that_are_sampled() -> None:
    """A single response has two dialogues and a pair one, so that the number depends on the rows."""
    settings = ["rejection.prompts=9", "rejection.samples=4", "data.heldout="]
    recipe = load(Recipe, "smol", ["method=iterative", "data.max_prompt_tokens=", *settings])
    data = data_of(recipe)
    sizes = {stage.name: stage.size(data) for stage in pipeline_of(recipe).stages}
    assert sizes["rejection-1"].sampled == 4 * sizes["sft-1"].trained
