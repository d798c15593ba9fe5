"""Ctrl-C in a terminal during `tirjudge train`, with the recipe `mini` at small values and a real sandbox."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.command import TIRJUDGE
from tirjudge.storage.run_folder import read_lines

SMALL = (
    "warmup.corpus.programs=8",
    "warmup.corpus.readings=8",
    "warmup.corpus.dialogues=24",
    "warmup.sft.batch=8",
    "warmup.sft.micro_batch=8",
    "warmup.sft.checkpoint_every=1000",
    "rl.steps=4",
    "rl.groups=4",
    "rl.samples=4",
    "rl.micro_batch=16",
    "rl.replacement_rounds=0",
    "rl.checkpoint_every=3",
    "rl.keep_checkpoints=1",
    "heldout.n=4",
    "heldout.max_tokens=40",
    "validation.n=4",
)
"""The warm-up has five steps and no checkpoint but the last; RL has one after step 3 and one after step 4."""


def train(folder: Path, *interrupt_at: str) -> tuple[int, str]:
    """Train, and press Ctrl-C when a line of progress matches each pattern; return exit code and output."""
    patterns = list(interrupt_at)
    words = [word for one in SMALL for word in ("--set", one)]
    with subprocess.Popen(
        [TIRJUDGE, "train", "--recipe", "mini", "--output", str(folder), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, which gets the signal as in a terminal
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if patterns and re.search(patterns[0], line):
                patterns.pop(0)
                os.killpg(process.pid, signal.SIGINT)
        process.wait()
    assert not patterns, f"never said {patterns}: {said}"
    return process.returncode, said


def test_an_interrupted_training_loses_no_step_and_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    code, said = train(whole)
    assert code == 0, said
    code, said = train(folder, "warmup: sft 1/5")
    assert code == 130, said
    assert "warmup: interrupted: writing a checkpoint after the step in progress" in said
    step = int(re.findall(r"interrupted after step (\d) of 5, which has a checkpoint", said)[0])
    assert 1 <= step < 5, "before the first checkpoint of the schedule"
    assert "Traceback" not in said
    code, said = train(folder, "rl: rl 1/4")
    assert f"warmup: sft resumes at step {step + 1}" in said
    assert "repeating" not in said
    assert code == 130, said
    (done,) = map(int, re.findall(r"rl: interrupted after step (\d) of 4, which has a checkpoint", said))
    assert done in (1, 2)
    assert "the same command resumes there" in said
    assert len(list(read_lines(folder / "rl" / "metrics.jsonl"))) == done, "no row is lost"
    code, said = train(folder)
    assert code == 0, said
    assert f"rl: rl resumes at step {done + 1} of 4" in said
    assert [row["step"] for row in read_lines(folder / "rl" / "metrics.jsonl")] == [0, 1, 2, 3]
    kept = [sorted(path.name for path in (run / "rl" / "checkpoints").iterdir()) for run in (whole, folder)]
    assert kept[0] == kept[1] == ["checkpoint-4"], "the interrupted one is gone"
    models = [load_file(run / "rl" / "model" / "model.safetensors") for run in (whole, folder)]
    assert all(weight.equal(models[1][name]) for name, weight in models[0].items())


def test_a_second_interrupt_ends_at_once_and_says_what_is_lost(tmp_path: Path) -> None:
    began = time.monotonic()
    code, said = train(tmp_path, "warmup: sft 1/5", "writing a checkpoint after the step in progress")
    assert code == 130, said
    assert "before its first checkpoint; the same command starts this stage again" in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("warmup/checkpoints/*")), f"nothing was saved in {time.monotonic() - began}"


@pytest.mark.parametrize("phase", ["writing 40 samples"])
def test_an_interrupt_outside_of_a_training_ends_at_once(tmp_path: Path, phase: str) -> None:
    code, said = train(tmp_path, phase)
    assert code == 130
    assert "warmup: interrupted before its first checkpoint; the same command starts this stage again" in said
    assert "Traceback" not in said
