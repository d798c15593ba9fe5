"""Supervised fine-tuning: it learns, ignores masked tokens, and a kill does not change the result."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from safetensors.torch import load_file
from torch.utils.data import BatchSampler, SequentialSampler

from examples.miniature.model import build_model, save
from examples.miniature.scripted_teacher import Habits
from examples.miniature.warmup_corpus import program_example
from tests.training.forked import Forked
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import ChatEncoder
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.interruption import Interrupted
from tirjudge_training.sft import IGNORED, Sample, SftConfig, in_batches, ordered, train_sft

CONFIG = SftConfig(batch=4, micro_batch=2, learning_rate=3e-3, checkpoint_every=8)


def samples(start: Path, count: int = 88) -> list[Sample]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(start)
    encoder = ChatEncoder(tokenizer)
    return [
        Sample.answer(encoder, *program_example(Habits(), i, 0), tokenizer.eos_token_id) for i in range(count)
    ]


def train(
    start: Path,
    folder: Path,
    kill_at: str | tuple[str, ...] = "",
    config: SftConfig = CONFIG,
    *,
    by: signal.Signals = signal.SIGKILL,
    said: list[str] | None = None,
) -> None:
    import os

    def say(line: str) -> None:
        if said is not None:
            said.append(line)
        if kill_at and line.startswith(kill_at):
            os.kill(os.getpid(), by)

    with RunFolder(folder) as run:
        model = train_sft(start, run, config, samples(start), seed=1, say=say)
        model.save_pretrained(folder / "model")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    save(folder, *build_model(0))
    return folder


@pytest.fixture(scope="module")
def whole(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(start, folder)
    return folder


@pytest.mark.slow
def test_a_long_step_reports_its_micro_batches(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tirjudge.progress.SECONDS", 0)
    said: list[str] = []
    config = CONFIG.model_copy(update={"batch": 44, "micro_batch": 11})
    train(start, tmp_path, config=config, said=said)
    parts = [line.split(",")[0] for line in said if "micro-batch" in line]
    assert parts == [f"step {step} of 2: {part} of 4 micro-batches" for step in (1, 2) for part in (1, 2, 3)]


def test_the_loss_falls_and_is_logged(start: Path, whole: Path) -> None:
    rows = list(read_lines(whole / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 8, 10, 16, 20, 22], "checkpoints and the last step have rows"
    assert rows[-1]["num_tokens"] == sum(len(sample.ids) for sample in samples(start))
    assert rows[0]["loss"] == pytest.approx(6.93, abs=0.2), "ln 1024 before anything is learned"
    assert rows[-1]["loss"] < 5
    assert all(row["seconds/mean_step"] > 0 and row["gib/process"] > 0.1 for row in rows)
    machine = json.loads((whole / "machine.json").read_text())
    assert (machine["weights"], machine["training"]) == ("float32", "float32")
    assert "sampler" not in machine


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_like_an_uninterrupted_one(
    start: Path, whole: Path, tmp_path: Path
) -> None:
    """Killed between two checkpoints, so that steps and a row of metrics are repeated."""
    assert Forked(train, start, tmp_path, "step 10 of").wait() == -signal.SIGKILL
    assert checkpoints.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "checkpoint-8"
    train(start, tmp_path)
    resumed, expected = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, whole))
    assert all(resumed[name].equal(expected[name]) for name in expected)
    steps = [[row["step"] for row in read_lines(folder / "metrics.jsonl")] for folder in (tmp_path, whole)]
    assert steps[0] == steps[1]


@pytest.mark.slow
def test_ctrl_c_saves_the_step_in_progress_and_the_run_ends_like_an_uninterrupted_one(
    start: Path, whole: Path, tmp_path: Path
) -> None:
    """Step 11 of 22 is not one of the schedule's checkpoints, which come every 8 steps."""
    said: list[str] = []
    with pytest.raises(Interrupted, match="interrupted after step 11 of 22, which has a checkpoint"):
        train(start, tmp_path, "step 10 of", by=signal.SIGINT, said=said)
    saved = tmp_path / "checkpoints" / "interrupted" / "checkpoint-11"
    assert checkpoints.latest(tmp_path / "checkpoints") == saved
    assert [path.name for path in checkpoints.marked(tmp_path / "checkpoints")] == ["checkpoint-8"]
    train(start, tmp_path, said=said)
    assert "resumes at step 12" in said, "nothing is repeated"
    resumed, expected = (load_file(folder / "model" / "model.safetensors") for folder in (tmp_path, whole))
    assert all(resumed[name].equal(expected[name]) for name in expected)
    kept = [sorted(path.name for path in (folder / "checkpoints").iterdir()) for folder in (tmp_path, whole)]
    assert kept[0] == kept[1], "that of the interruption is gone"
    assert [row["step"] for row in read_lines(tmp_path / "metrics.jsonl")] == [1, 8, 10, 11, 16, 20, 22]
    restart = {"step": 11, "event": "resumed", "about": "resumed at step 12"}
    assert list(read_lines(tmp_path / "events.jsonl")) == [restart]


def test_a_second_ctrl_c_ends_at_once(start: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        train(start, tmp_path, ("step 1 of", "interrupted:"), by=signal.SIGINT)
    assert not isinstance(caught.value, Interrupted)
    assert checkpoints.latest(tmp_path / "checkpoints") is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_tokens_without_a_label_are_not_learned(start: Path, tmp_path: Path) -> None:
    """The loss is the mean over labelled tokens, however many others there are."""
    from transformers import AutoModelForCausalLM

    few = samples(start, 4)
    with RunFolder(tmp_path) as run:
        train_sft(start, run, CONFIG, few, seed=1, say=lambda line: None)
    reported = next(iter(read_lines(tmp_path / "metrics.jsonl")))["loss"]
    model = AutoModelForCausalLM.from_pretrained(start)
    losses = torch.cat([_losses(model, sample) for sample in few])
    assert reported == pytest.approx(float(losses.mean()), abs=1e-3)


def _losses(model: torch.nn.Module, sample: Sample) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([sample.ids])).logits[0, :-1]
    labels = torch.tensor(sample.labels[1:])
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")[labels != IGNORED]


def test_batches_are_alike_in_length_and_hold_every_sample_once() -> None:
    lengths = [10 + 7 * i % 90 for i in range(1001)]
    given = [Sample((i, *[0] * (length - 1)), (i,) * length) for i, length in enumerate(lengths)]
    order = in_batches(given, 16, seed=3)
    assert sorted(sample.ids[0] for sample in order) == list(range(1001))
    assert order == in_batches(given, 16, seed=3) != in_batches(given, 16, seed=4)
    assert padded(order) < 1.3 * sum(lengths) < padded(given)
    means = [sum(len(s.ids) for s in order[i : i + 160]) / 160 for i in range(0, 960, 160)]
    assert max(means) - min(means) < 20, "long and short batches must alternate"


def padded(order: list[Sample]) -> int:
    """Return the tokens computed in batches of 16, padding included."""
    batches = [order[i : i + 16] for i in range(0, len(order), 16)]
    return sum(len(batch) * max(len(sample.ids) for sample in batch) for batch in batches)


@pytest.mark.parametrize(("micro_batch", "processes"), [(4, 8), (64, 8), (8, 2)])
def test_the_processes_of_a_step_pass_samples_of_similar_lengths(micro_batch: int, processes: int) -> None:
    """accelerate itself says which micro-batch each process gets; all wait for the longest of a pass."""
    rng = Random(0)
    lengths = [1500 + int(rng.lognormvariate(6, 0.8)) for _ in range(64 * 20 + 9)]
    given = [Sample((i, *[0] * (length - 1)), (i,) * length) for i, length in enumerate(lengths)]
    config = SftConfig(batch=64, micro_batch=micro_batch)
    alone, shared = ordered(given, config, 3, 1), ordered(given, config, 3, processes)
    for start in range(0, len(given), 64):
        one, other = ({s.ids[0] for s in order[start : start + 64]} for order in (alone, shared))
        assert one == other, "an optimizer step has the same samples for any number of processes"
    size = min(micro_batch, 64 // processes)
    before, after = (waited(order[: 64 * 20], size, processes) for order in (alone, shared))
    assert after[0] <= before[0]
    assert after[1] < 0.5 * before[1], "the mean difference between processes, in tokens of a row"
    if micro_batch * processes < 64:
        assert after[0] < 0.95 * before[0]


def waited(order: list[Sample], size: int, processes: int) -> tuple[int, float]:
    """Return the tokens in which all processes wait for the slowest, and how much their lengths differ."""
    batches = BatchSampler(SequentialSampler(order), size, drop_last=False)
    shares = [list(BatchSamplerShard(batches, processes, rank)) for rank in range(processes)]
    passes = [
        [max(len(order[i].ids) for i in micro_batch) for micro_batch in together]
        for together in zip(*shares, strict=True)
    ]
    return sum(size * max(one) for one in passes), fmean(max(one) - min(one) for one in passes)


def test_unfit_samples_are_refused(start: Path, tmp_path: Path) -> None:
    good = samples(start, 2)
    empty = replace(good[1], labels=(IGNORED,) * len(good[1].ids))
    with RunFolder(tmp_path) as run:
        with pytest.raises(ValueError, match="sample 1 has no token"):
            train_sft(start, run, CONFIG, [good[0], empty], seed=1, say=print)
        short = CONFIG.model_copy(update={"max_tokens": 10})
        with pytest.raises(ValueError, match=r"sample 0 has \d+ tokens, more than max_tokens = 10"):
            train_sft(start, run, short, good, seed=1, say=print)
