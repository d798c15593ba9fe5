"""The RL stage end to end with a real sandbox, a real model and TRL's trainer, also when it is killed.

Its rollout log holds every rollout as sampled, and its reporter the metrics of the run folder.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.tirjudge.judge_command import command
from tests.training.conftest import ENVIRONMENTS, small_rl, source
from tests.training.forked import killed
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Message
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.interruption import Interrupted
from tirjudge_training.rl import config
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.rl.training_loop import train_rl

CONFIG = small_rl(steps=3, optimizer_steps=2, micro_batch=4, checkpoint_every=2, report_to=("tensorboard",))


def halved(step: int, round_number: int, position: int) -> FormattedTask:
    """Return a task whose prompt has a lone surrogate, which JSON can store and UTF-8 cannot."""
    formatted = source(step, round_number, position)
    return FormattedTask(formatted.format, replace(formatted.task, prompt=(Message("user", "q\ud800"),)))


def train(
    start: Path, folder: Path, say: Callable[[str], None] = lambda line: None, tasks: TaskSource = halved
) -> None:
    with RunFolder(folder) as run:
        model = train_rl(start, run, CONFIG, environments=ENVIRONMENTS, source=tasks, seed=1, say=say)
        model.save_pretrained(run.path / "model")


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return all rows without timings."""
    return [_timeless(row) for row in read_lines(folder / name)]


def _timeless(value: Any) -> Any:
    """Drop differences to the sampler too: their last bits depend on which rows were decoded in one batch."""
    if isinstance(value, dict):
        timed = {key for key in value if "seconds" in key or key.startswith(("share/", "gib/"))} | {
            "sampler_gap",
            "kl_start",
        }
        return {key: _timeless(item) for key, item in value.items() if key not in timed}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(tiny_model, folder)
    return folder


def test_every_rollout_and_a_row_of_metrics_per_step_are_stored(whole: Path) -> None:
    metrics, episodes = rows(whole, "metrics.jsonl"), rows(whole, "episodes.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2]
    for row in metrics:
        first = [e for e in episodes if e["step"] == row["step"] and not e["replacement"]]
        rewards = [t["reward"]["total"] for e in first for t in e["trajectories"]]
        assert row["reward"] == pytest.approx(sum(rewards) / len(rewards))
        assert len(rewards) == CONFIG.groups * CONFIG.samples
        assert row["loss"] != 0
        assert row["kl"] >= 0
        assert row["entropy"] > 0
    programs = [p for e in episodes for t in e["trajectories"] for p in t["programs"]]
    assert {"ok", "error"} <= {program["status"] for program in programs}, (
        "the sandbox must have run the programs"
    )


def test_token_counts_equal_those_of_the_rollout_log(whole: Path) -> None:
    """Generated tokens follow from the mask; trained ones from views neither all right nor all wrong."""
    for row in read_lines(whole / "metrics.jsonl"):
        shard = pq.read_table(whole / "rollouts" / f"step-{row['step']:06}.parquet").to_pylist()
        assert row["tokens/generated"] == sum(sum(one["mask"]) for one in shard)
        groups: dict[tuple[Any, ...], list[Any]] = {}
        for one in shard:
            groups.setdefault((one["replacement"], one["format"], one["id"], one["view"]), []).append(one)
        taught = [group for group in groups.values() if len({right(one) for one in group}) == 2]
        assert len(taught) == row["groups/in_loss"]
        assert row["tokens/trained"] == sum(
            len(one["prompt_ids"]) + len(one["completion_ids"]) for group in taught for one in group
        )


def test_accuracy_by_domain_follows_from_the_rollout_log(whole: Path) -> None:
    for row in read_lines(whole / "metrics.jsonl"):
        shard = pq.read_table(whole / "rollouts" / f"step-{row['step']:06}.parquet").to_pylist()
        first = [one for one in shard if not one["replacement"]]
        found = {key.removeprefix("domain/") for key in row if key.startswith("domain/")}
        assert found == {one["domain"] for one in first} != set()
        for domain in found:
            verdicts = [right(one) for one in first if one["domain"] == domain]
            assert row[f"domain/{domain}"] == pytest.approx(sum(verdicts) / len(verdicts))


def right(rollout: dict[str, Any]) -> float:
    return next(part["value"] for part in rollout["parts"] if part["name"] == "right")


def test_the_policy_changes_and_samples_with_its_current_weights(whole: Path, tiny_model: Path) -> None:
    """Sampled logprobs equal the trainer's within 1e-5, also after the weights have changed."""
    assert all(0 < row["sampler_gap"] < 1e-5 for row in read_lines(whole / "metrics.jsonl"))
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model, whole / "model"))
    assert any(not before[name].equal(after[name]) for name in before)


def test_clip_higher_acts_when_a_batch_is_used_for_several_steps(whole: Path) -> None:
    metrics = rows(whole, "metrics.jsonl")
    assert max(row["clipped_low"] for row in metrics) > 0
    assert max(row["clipped_high"] for row in metrics) > 0


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_like_an_uninterrupted_one(
    whole: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The kill comes after the last checkpoint, so a step is repeated and must not be recorded twice."""
    assert killed(train, tiny_model, tmp_path, "step 3 of 3: mean") == -signal.SIGKILL
    assert checkpoints.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "checkpoint-4"
    assert len(rows(tmp_path, "metrics.jsonl")) == 3
    train(tiny_model, tmp_path)
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert rows(tmp_path, name) == rows(whole, name)
    resumed, expected = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, whole))
    assert all(resumed[name].equal(expected[name]) for name in expected)


@pytest.mark.slow
def test_ctrl_c_saves_the_step_in_progress_and_the_run_ends_like_an_uninterrupted_one(
    whole: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule has no checkpoint after the first of three steps, only after the second and the last."""
    said: list[str] = []
    pressed: list[int] = []

    def interrupting(step: int, round_number: int, position: int) -> Any:
        if not pressed:
            pressed.append(step)
            os.kill(os.getpid(), signal.SIGINT)
        return halved(step, round_number, position)

    with pytest.raises(Interrupted, match="interrupted after step 1 of 3, which has a checkpoint"):
        train(tiny_model, tmp_path, said.append, tasks=interrupting)
    assert sum("interrupted: writing a checkpoint after the step" in line for line in said) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    saved = tmp_path / "checkpoints" / "interrupted" / "checkpoint-2"
    assert checkpoints.latest(tmp_path / "checkpoints") == saved
    assert checkpoints.marked(tmp_path / "checkpoints") == [], "it is none to choose from"
    assert rows(tmp_path, "metrics.jsonl") == rows(whole, "metrics.jsonl")[:1]
    said.clear()
    monkeypatch.setattr("tirjudge.progress.SECONDS", 0)
    train(tiny_model, tmp_path, said.append)
    assert "resumes at step 2 of 3" in said
    sampled = [line for line in said if re.search(r": \d+ of 12 rollouts, .*tokens a second", line)]
    assert {line.split(":")[0] for line in sampled} == {"step 2 of 3", "step 3 of 3"}
    trained = [line.split(",")[0] for line in said if "trained on" in line]
    assert trained == [
        f"step {step} of 3: {n} of 4 micro-batches trained on" for step in (2, 3) for n in range(1, 5)
    ]
    assert rows(tmp_path, "events.jsonl") == [{"step": 1, "event": "resumed", "about": "resumed at step 2"}]
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert rows(tmp_path, name) == rows(whole, name)
    kept = [sorted(path.name for path in (folder / "checkpoints").iterdir()) for folder in (tmp_path, whole)]
    assert kept[0] == kept[1], "that of the interruption is gone"
    resumed, expected = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, whole))
    assert all(resumed[name].equal(expected[name]) for name in expected)


@pytest.fixture(scope="module")
def logged(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of the rollout log as `datasets` reads them, beside a file that a killed writer left."""
    (whole / "rollouts" / ".step-000003.parquet.new").write_bytes(b"PAR1")
    cache = str(tmp_path_factory.mktemp("cache"))
    return list(load_dataset(str(whole / "rollouts"), split="train", cache_dir=cache))


def test_the_rollout_log_has_the_dialogues_of_the_run_with_their_tokens(
    whole: Path, logged: list[dict[str, Any]]
) -> None:
    dialogues = [
        (episode["step"], episode["id"], one["view"], one["sample"], one["reward"]["total"], one["stop"])
        for episode in read_lines(whole / "episodes.jsonl")
        for one in episode["trajectories"]
    ]
    columns = ("step", "id", "view", "sample", "reward", "stop")
    assert [tuple(row[column] for column in columns) for row in logged] == dialogues
    assert {row["replacement"] for row in logged} == {False, True}
    for row in logged:
        assert len(row["completion_ids"]) == len(row["mask"]) == len(row["logprobs"])
        sampled = [logprob for logprob, own in zip(row["logprobs"], row["mask"], strict=True) if own]
        assert sampled
        assert all(logprob < 0 for logprob in sampled)
        assert (0 in row["mask"]) == ("```output" in row["completion"]), (
            "only the sandbox's tokens are masked"
        )
        assert row["prompt_ids"]
        assert {part["name"] for part in row["parts"]} >= {"right", "teaches", "format", "tool"}


def test_data_inspect_reads_the_rollout_log(whole: Path, logged: list[dict[str, Any]]) -> None:
    ran = command("data", "inspect", whole / "rollouts", code=0)
    assert f"{len(logged):,}" in ran.stdout
    assert "tir-pairwise" in ran.stdout


def test_tensorboard_has_the_metrics_of_the_run_folder(whole: Path) -> None:
    (events,) = whole.glob("checkpoints/runs/*/events.out.tfevents.*")
    shown = EventAccumulator(str(events))
    shown.Reload()
    rows = list(read_lines(whole / "metrics.jsonl"))
    for name in set().union(*rows) - {"step"}:
        points = [(point.step, point.value) for point in shown.Scalars(f"train/{name}")]
        kept = [((row["step"] + 1) * CONFIG.optimizer_steps, row[name]) for row in rows if name in row]
        assert points == [(step, pytest.approx(value, rel=1e-5)) for step, value in kept], name


def test_a_missing_reporter_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder, "find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest)
    )
    config.require_reporters(("tensorboard",))
    with pytest.raises(config.ReporterMissing, match=r"tirjudge\[wandb\]"):
        config.require_reporters(("tensorboard", "wandb"))
