"""Ctrl-C in a terminal during `tirjudge train`, with the recipe `mini` at small values and a real sandbox."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.training.forked import tirjudge
from tests.training.miniature import MINI, assignments
from tirjudge.storage.json_lines import read_lines

SMALL = (
    "data.demonstrations=package:smol/warmup.jsonl.xz",
    "demonstrations.rows=20",
    "warmup.sft.batch=4",
    "warmup.sft.micro_batch=4",
    "warmup.sft.checkpoint_every=1000",
    "rl.steps=4",
    "rl.groups=4",
    "rl.samples=4",
    "rl.micro_batch=16",
    "rl.replacement_rounds=0",
    "rl.checkpoint_every=3",
    "rl.keep_checkpoints=1",
    "heldout.n=1",
    "heldout.max_tokens=40",
    "validation.n=4",
)
"""The warm-up has at least four steps and no checkpoint but the last; RL has two, after steps 3 and 4."""


def train(folder: Path, *interrupt_at: str) -> tuple[int, str]:
    """Train, and press Ctrl-C when a line of progress matches each pattern; return exit code and output."""
    patterns = list(interrupt_at)
    words = [word for one in (*assignments(), *SMALL) for word in ("--set", one)]
    pipe = folder.with_name("stderr")
    if not pipe.exists():
        os.mkfifo(pipe)
    process = tirjudge("train", "--recipe", MINI, "--output", str(folder), *words, stderr=pipe)
    said = ""
    with pipe.open() as lines:
        for line in lines:
            said += line
            if patterns and re.search(patterns[0], line):
                patterns.pop(0)
                # Its group of processes gets the signal, as in a terminal.
                os.killpg(process.pid, signal.SIGINT)
    code = process.wait()
    assert not patterns, f"never said {patterns}: {said}"
    return code, said


@pytest.mark.slow
def test_an_interrupted_stage_says_where_the_same_command_goes_on(tmp_path: Path) -> None:
    code, said = train(tmp_path / "run", r"warmup: step 1 of \d")
    assert code == 130, said
    assert "warmup: interrupted: writing a checkpoint after the step in progress" in said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert "; the same command resumes there" in last
    ((step, steps),) = re.findall(r"interrupted after step (\d) of (\d), which has a checkpoint", last)
    assert 1 <= int(step) < int(steps), "before the first checkpoint of the schedule"
    code, said = train(tmp_path / "run", "rl: step 1 of 4: mean")
    assert code == 130, said
    assert f"warmup: resumes at step {int(step) + 1}\n" in said
    assert "Traceback" not in said
    assert re.search(r"rl: interrupted after step [12] of 4, which has a checkpoint; .* there\n$", said), said
    done = len(list(read_lines(tmp_path / "run" / "rl" / "metrics.jsonl")))
    assert f"after step {done} of 4" in said, "no row is lost"
