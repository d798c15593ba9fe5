"""The check and the benchmark of training on a GPU, small and on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.gpu_check import __main__ as check
from benchmarks.gpu_training import RESULT, main, parameters, shape
from examples.miniature import TRAINED
from examples.miniature.model import build_model


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--output", str(folder), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_step_leaves_its_findings(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts")
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "facts.json").read_text())
    assert found["a program"]["stdout"] == "42\n"
    assert found["versions"]["torch"]
    assert ran.stdout.splitlines()[-1].startswith("facts          done in ")


def test_no_step_begins_after_the_budget(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts,kernels", "--budget", "0")
    assert ran.returncode == 1
    assert [line.split(maxsplit=1) for line in ran.stdout.splitlines()[-1:]] == [["kernels", "left out"]]


def test_an_unknown_step_is_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts,speed")
    assert ran.returncode == 2
    assert "no step 'speed': there are facts, numerics" in ran.stderr.splitlines()[-1]


def test_a_step_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(check.LIMITS, "facts", 0.2)
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--output", str(tmp_path), "--only", "facts"])
    assert check.main() == 1
    assert "ended after its 0.2 s" in capsys.readouterr().out


SMALL = ["--groups", "2", "--steps", "2", "--set", "rl.max_tokens=80", "--set", "heldout.max_tokens=16"]


def test_parameters_are_counted_as_torch_counts_them() -> None:
    network, _ = build_model(0, shape(parameters("3M")))
    assert network.num_parameters() == shape(parameters("3M")).parameters


@pytest.mark.slow
def test_all_numbers_are_there_and_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--model", str(TRAINED), "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / RESULT).read_text())
    assert found["machine"]["training"] == found["machine"]["sampling"] == "float32"
    assert found["batches"] == 1, "the first of the two is no measurement"
    first, second = found["metrics"]
    for row in (first, second):
        rollouts = shard(tmp_path, row["step"])
        assert row["tokens/generated"] == sum(sum(one["mask"]) for one in rollouts)
        assert row["tokens/trained"] == sum(
            len(one["prompt_ids"] + one["completion_ids"]) for one in rollouts
        )
    one = {name: values["median"] for name, values in found["summary"].items()}
    shares = [one[f"share of time, {part}"] for part in ("generation", "sandbox", "training", "the rest")]
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1)
    each_second = one["generated, tokens per second of the batch"]
    assert each_second * one["seconds per batch"] == pytest.approx(second["tokens/generated"])
    in_training = one["trained, tokens per second of training"] * one["share of time, training"]
    assert in_training * one["seconds per batch"] == pytest.approx(second["tokens/trained"])
    assert one["gib/process"] > 0.1
    assert one["programs per rollout"] > 0.5
    assert second["seconds/programs"] > 0
    assert found["parameters"] == 918_912
    printed = capsys.readouterr().out
    assert all(name in printed for name in found["summary"])


def shard(folder: Path, step: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / f"rl/rollouts/step-{step:06}.parquet").to_pylist()
    return rows
