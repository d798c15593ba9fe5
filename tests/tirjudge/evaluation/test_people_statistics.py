"""Labels of people and a judge: numbers beside scipy, statsmodels, scikit-learn and the authors' code."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate
from scipy.stats import norm, t, ttest_1samp
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from statsmodels.stats.multitest import multipletests

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_calibrate import calibration
from tests.tirjudge.judge_command import command
from tirjudge.evaluation.calibration import CalibratedRow
from tirjudge.evaluation.prediction_powered import corrected
from tirjudge.evaluation.significance import below, false_discoveries, holm
from tirjudge.evaluation.stored_outputs.reading import open_replay

PEOPLE, JUDGE = "pandalm/testset-v1.json", "judgelrm/results_judgelrm3b.json"
WIN = {"0": 0.5, "1": 1.0, "2": 0.0}


def some_labels(path: Path, count: int) -> list[dict[str, Any]]:
    """Write the labels of some PandaLM rows, drawn by chance, and return them."""
    rows = json.loads(benchmark_file(PEOPLE).read_text())
    chosen: list[dict[str, Any]] = random.Random(0).sample(rows, count)
    path.write_text("".join(json.dumps(one) + "\n" for one in chosen))
    return chosen


def most(row: dict[str, Any]) -> str:
    votes = [str(row[f"annotator{number}"]) for number in (1, 2, 3)]
    return max(votes, key=votes.count)


def test_a_few_labels_correct_the_bias_of_the_judge(tmp_path: Path) -> None:
    chosen = some_labels(tmp_path / "labels.jsonl", 150)
    run = benchmark_file(JUDGE)
    words = ("score", run, "--calibrate", tmp_path / "labels.jsonl", "--cluster", "idx")
    found = calibration(*words)["corrected"]["win rate of A"]
    said = {row.id: {0: 1.0, 1: 0.0}.get(row.votes[0].choice or 0, 0.5) for row in open_replay(run)}
    said |= {row.id: 0.5 for row in open_replay(run) if row.votes[0].choice is None}
    ids = [str(row["idx"]) for row in chosen]
    people = np.array([WIN[most(row)] for row in chosen])
    judged = np.array([said[id] for id in ids])
    others = np.array([value for id, value in said.items() if id not in ids])
    assert (found["n"], found["unlabelled"]) == (150, 849)
    assert found["value"] == pytest.approx(float(np.squeeze(ppi_mean_pointestimate(people, judged, others))))
    low, high = (float(np.squeeze(bound)) for bound in ppi_mean_ci(people, judged, others, alpha=0.05))
    wider = t.ppf(0.975, 149) / norm.ppf(0.975)
    assert (found["high"] - found["low"]) / 2 == pytest.approx(wider * (high - low) / 2, rel=1e-4)
    # All labels say 47.5 %, outside of the judge's interval.
    truth = np.mean([WIN[most(row)] for row in json.loads(benchmark_file(PEOPLE).read_text())])
    assert round(float(truth), 3) == 0.475
    assert [round(found["judge"][name], 3) for name in ("value", "low", "high")] == [0.521, 0.491, 0.550]
    assert found["low"] < truth < found["high"] < found["people"]["high"]
    text = command(*words).stdout
    assert "if people had judged all 999 rows, from 150 labels and the judge's verdicts (PPI++)" in text


def test_all_labels_leave_nothing_to_correct_and_few_give_no_interval(tmp_path: Path) -> None:
    run = benchmark_file(JUDGE)
    assert calibration("score", run, "--calibrate", benchmark_file(PEOPLE))["corrected"] == {}
    some_labels(tmp_path / "labels.jsonl", 40)
    words = ("score", run, "--calibrate", tmp_path / "labels.jsonl")
    found = calibration(*words, "--cluster", "idx")["corrected"]["win rate of A"]
    assert (found["low"], found["no_interval"]) == (None, "fewer than 50 labelled rows")
    assert "nan" not in command(*words).stdout


def test_rows_that_are_repeated_in_a_cluster_tell_nothing_new() -> None:
    draw = np.random.default_rng(3)
    gold, noise = draw.integers(2, size=600), draw.random(600) < 0.2
    rows = [
        CalibratedRow(str(n), int(one ^ wrong), (int(one),), int(one), 1.0, (), cluster=f"c{n}")
        for n, (one, wrong) in enumerate(zip(gold, noise, strict=True))
    ]
    once = corrected(rows[:200], rows[200:])[0]
    twice = corrected([*rows[:200], *rows[:200]], [*rows[200:], *rows[200:]])[0]
    assert twice.value == pytest.approx(once.value, abs=1e-3)
    widths = [one.interval[1] - one.interval[0] for one in (once, twice)]
    assert widths[1] == pytest.approx(widths[0], rel=0.01)
    # Thirty clusters with an unusual label are enough, and as many labels of 29 clusters are not.
    for clusters, fault in (30, ""), (29, "fewer than 30 clusters have labels that differ"):
        usual = [replace(one, gold=0, people=(0,)) for one in [*rows[:100], *rows[:100]]]
        unusual = [
            replace(one, gold=1, people=(1,), cluster=f"u{n % clusters}") for n, one in enumerate(rows[:60])
        ]
        assert corrected([*usual, *unusual], rows[200:])[0].fault.startswith(fault)
        assert bool(corrected([*usual, *unusual], rows[200:])[0].fault) == bool(fault)


@pytest.mark.parametrize(
    ("judge", "rho", "passing"),
    [
        (JUDGE, 0.8194861528194862, {"0.2": 1.0}),
        ("pandalm/pandalm-7b-testset-v1.json", 0.7147147147147148, {}),
        ("pandalm/gpt-3.5-turbo-testset-v1.json", 0.7410744077410744, {}),
    ],
)
def test_the_alternative_annotator_test_is_that_of_its_authors(
    judge: str, rho: float, passing: dict[str, float]
) -> None:
    """Expected values: `alt_test` of nitaytech/AltTest over the same rows, whose unit is the row."""
    people = benchmark_file(PEOPLE)
    labels = () if judge == JUDGE else ("--labels", people)
    found = calibration("score", benchmark_file(judge), *labels, "--calibrate", people, "--cluster", "idx")[
        "alternative_annotator_test"
    ]
    assert found["annotators"] == ["annotator1", "annotator2", "annotator3"]
    assert found["rho"]["value"] == pytest.approx(rho)
    assert found["rho"]["low"] < rho < found["rho"]["high"]
    assert found["omega"] == {"0": 0, "0.05": 0, "0.1": 0, "0.15": 0, "0.2": 0} | passing


def test_two_annotators_are_too_few_for_the_alternative_annotator_test(tmp_path: Path) -> None:
    rows = some_labels(tmp_path / "labels.jsonl", 200)
    for row in rows:
        del row["annotator3"]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = calibration("score", benchmark_file(JUDGE), "--calibrate", tmp_path / "labels.jsonl")
    assert found["alternative_annotator_test"] is None


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=3, max_size=40), st.sampled_from([0.0, 0.1, 0.2]))
def test_the_test_of_a_mean_is_students(values: list[float], limit: float) -> None:
    if len({*values}) > 1:
        assert below(np.array(values), limit) == pytest.approx(
            float(ttest_1samp(values, limit, alternative="less").pvalue)
        )
    else:
        assert below(np.array(values), limit) == float(values[0] >= limit)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrections_for_several_tests_are_those_of_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())
    rejected = multipletests(p_values, alpha=0.05, method="fdr_by")[0]
    assert false_discoveries(p_values) == rejected.tolist()


def test_brier_score_and_calibration_error_of_votes_of_three_judges() -> None:
    people = benchmark_file(PEOPLE)
    words = ["score", benchmark_file("pandalm/pandalm-7b-testset-v1.json"), "--labels", people]
    words += ["--calibrate", people, "--rerun", benchmark_file("pandalm/gpt-3.5-turbo-testset-v1.json")]
    found = calibration(*words, "--rerun", benchmark_file(JUDGE), "--cluster", "idx")
    before, shown, right = 0.0, [], []
    for point in found["curve"]:
        kept = round(point["coverage"]["value"] * point["coverage"]["n"])
        wrong = round(point["risk"]["value"] * kept)
        count, errors = kept - len(shown), wrong - before
        shown += [point["threshold"]] * count
        right += [0] * int(errors) + [1] * int(count - errors)
        before = wrong
    assert found["brier"]["value"] == pytest.approx(brier_score_loss(right, shown))
    squares = (np.array(shown) - np.array(right)) ** 2
    spread = t.ppf(0.975, len(right) - 1) * np.std(squares, ddof=1) / np.sqrt(len(right))
    assert found["brier"]["high"] - found["brier"]["value"] == pytest.approx(spread, rel=1e-3)
    accuracy, confidence = calibration_curve(right, shown, n_bins=10)
    counts = np.histogram(shown, np.linspace(0, 1, 11))[0]
    error = np.average(np.abs(accuracy - confidence), weights=counts[counts > 0])
    assert found["calibration_error"] == pytest.approx(error)
    margins = calibration("score", benchmark_file(JUDGE), "--calibrate", people, "--confidence", "margin")
    assert (margins["brier"], margins["calibration_error"]) == (None, None)
