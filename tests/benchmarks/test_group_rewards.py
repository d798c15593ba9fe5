"""The measurements of group rewards, small: a perfect judge's order, and a training that is verified."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.group_rewards.__main__ import interval, main
from benchmarks.group_rewards.simulation import Arm, play, steepness


def test_a_perfect_judge_finds_the_whole_order_and_the_best() -> None:
    for seed in range(5):
        assert play(Arm("round-robin", None), 8, 1e9, seed) == (pytest.approx(1), 1, 28)
        _, best, calls = play(Arm("knockout", None), 8, 1e9, seed)
        assert (best, calls) == (1, 7)
        assert play(Arm("listwise", None), 8, 1e9, seed)[1:] == (1, 1)
    assert play(Arm("pivot", None, repeats=2), 8, 1.0, 0)[2] == 14


def test_the_simulated_judge_has_the_accuracy_that_was_asked_for() -> None:
    assert steepness(0.5) == pytest.approx(0, abs=1e-6)
    # In a group of two, the reward is right as often as the judge.
    k, pair = steepness(0.8), Arm("round-robin", None)
    right = fmean(play(pair, 2, k, seed)[1] for seed in range(1500))
    assert right == pytest.approx(0.8, abs=0.03)


def test_an_interval_over_seeds_is_students() -> None:
    # Quantile 4.302653 for two degrees of freedom; the standard error of 0, 3, 6 is sqrt(3).
    assert interval([0.0, 0.03, 0.06]) == "+3.0 [-4.5, +10.5]"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_training_is_measured_by_the_constraints_own_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The embedded miniature judges, GRPOTrainer trains, and a second call only prints what is there."""
    words = ["training", "--methods", "knockout", "--calls", "6", "--group-size", "4", "--seeds", "1"]
    words += ["--warm-up-steps", "2", "--prompts", "4", "--output", str(tmp_path)]
    assert main(words) == 0
    (run,) = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert (run["steps"], [point["calls"] for point in run["curve"]]) == (1, [0, 6])
    assert all(0 <= point["kept"] <= 1 for point in run["curve"])
    assert run["metrics"]["judge/calls"] == [3]
    table = capsys.readouterr().out
    assert "| knockout | 1 | 6 |" in table
    assert main(words) == 0
    assert capsys.readouterr().out == table[table.index("| method |") :]
