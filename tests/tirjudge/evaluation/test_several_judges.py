"""Several judges of the same rows: corrected tests, power and agreement, beside independent libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.judge_command import command, write_rows
from tirjudge.evaluation.significance import mcnemar
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.statistics.differences import detectable_difference
from tirjudge.statistics.estimators import Mean

PEOPLE = "pandalm/testset-v1.json"
JUDGES = {
    "pandalm": "pandalm/pandalm-7b-testset-v1.json",
    "gpt": "pandalm/gpt-3.5-turbo-testset-v1.json",
    "judgelrm": "judgelrm/results_judgelrm3b.json",
}
PLACES = ("--column", "prediction=said", "--column", "label=label", "--protocol", "one-order")


def published(folder: Path) -> dict[str, Path]:
    """Three published judges of PandaLM's rows, as files with the same columns and no prompts."""
    found = {}
    for name, file in JUDGES.items():
        labels = None if name == "judgelrm" else benchmark_file(PEOPLE)
        rows = []
        for row in open_replay(benchmark_file(file), labels=labels):
            vote = row.votes[0]
            said = None if not vote.best else "tie" if vote.tie else "AB"[vote.choice or 0]
            label = "tie" if row.label is None else "AB"[row.label]
            rows.append({"id": row.id, "said": said, "label": label})
        found[name] = write_rows(folder / f"{name}.jsonl", rows)
    return found


def records(*arguments: object) -> list[dict[str, Any]]:
    done = command("compare", *arguments, "--json", code=0)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def said(file: Path) -> dict[str, str | None]:
    rows = map(json.loads, file.read_text().splitlines())
    return {row["id"]: row["said"] for row in rows}


@pytest.mark.slow
def test_p_values_of_several_runs_are_corrected_and_power_is_that_of_statsmodels(tmp_path: Path) -> None:
    files = published(tmp_path)
    found = records(*files.values(), *PLACES)
    assert [one["runs"] for one in found] == [
        ["pandalm.jsonl", "gpt.jsonl"],
        ["pandalm.jsonl", "judgelrm.jsonl"],
    ]
    p_values = [one["p_value"] for one in found]
    assert [one["p_holm"] for one in found] == pytest.approx(
        multipletests(p_values, method="holm")[1].tolist()
    )
    rows = [json.loads(line) for line in files["pandalm"].read_text().splitlines()]
    for record, name in zip(found, ("gpt", "judgelrm"), strict=True):
        one, other = said(files["pandalm"]), said(files[name])
        changes = [
            (other[row["id"]] == row["label"]) - (one[row["id"]] == row["label"])
            for row in rows
            if row["label"] != "tie"
        ]
        effect = TTestPower().solve_power(nobs=len(changes), alpha=0.05, power=0.8)
        expected = effect * np.std(changes)
        assert record["differences"]["accuracy"]["detectable"] == pytest.approx(expected, rel=0.01)
    text = command("compare", *files.values(), *PLACES).stdout
    assert text.count(" by Holm for several runs") == 2
    two = records(files["pandalm"], files["gpt"], *PLACES)
    assert [one["p_holm"] for one in two] == [None]
    assert "Holm" not in command("compare", files["pandalm"], files["gpt"], *PLACES).stdout


def test_the_detectable_difference_is_found_in_four_of_five_runs() -> None:
    draw = np.random.default_rng(0)

    def pairs(up: float, down: float) -> np.ndarray[Any, Any]:
        return draw.choice([1, -1, 0], 400, p=[up, down, 1 - up - down])

    changes = np.repeat([1, -1, 0], [60, 60, 280])
    first, second = (Mean((changes == sign).astype(float)) for sign in (-1, 1))
    size = detectable_difference(first, second, 400)
    runs = [pairs(0.15 + size / 2, 0.15 - size / 2) for _ in range(1500)]
    shown = np.mean([mcnemar(int((one == 1).sum()), int((one == -1).sum())) < 0.05 for one in runs])
    assert 0.77 < shown < 0.84


@pytest.mark.slow
def test_the_agreement_of_three_judges_needs_no_labels(tmp_path: Path) -> None:
    files = published(tmp_path)
    for name, file in files.items():
        write_rows(file, [{"id": id, "said": one} for id, one in said(files[name]).items()])
    verdicts = [said(one) for one in files.values()]
    common = [id for id in verdicts[0] if all(one[id] for one in verdicts)]
    classes = np.array([["AB".find(one[id] or "") for id in common] for one in verdicts])
    (found,) = records(*files.values(), "--column", "prediction=said", "--full")
    agreement = found["agreement"]
    assert agreement["pairs"][0]["runs"] == ["pandalm.jsonl", "gpt.jsonl"]
    for pair, (one, other) in zip(agreement["pairs"], ((0, 1), (0, 2), (1, 2)), strict=True):
        assert pair["kappa"]["value"] == pytest.approx(cohen_kappa_score(classes[one], classes[other]))
        assert pair["agreement"]["value"] == pytest.approx(np.mean(classes[one] == classes[other]))
        assert pair["kappa"]["low"] < pair["kappa"]["value"] < pair["kappa"]["high"]
    peer = krippendorff.alpha(classes, level_of_measurement="nominal")
    assert agreement["alpha"]["value"] == pytest.approx(peer)
    assert agreement["alpha"]["n"] == len(common)
    done = command("compare", *files.values(), "--column", "prediction=said", "--full")
    assert (done.exit_code, done.stdout.count("Krippendorff's alpha of 3 judges 0.5")) == (0, 1)
    assert "only the agreement of the judges can be measured" in done.stderr
    # Without --full the answer is still that accuracy needs labels.
    assert command("compare", *files.values(), "--column", "prediction=said").exit_code == 2


def test_one_table_has_the_columns_of_two_judges_and_each_kappa_names_its_order(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    label = draw.integers(0, 2, 200)
    said = {
        name: np.where(draw.random(200) < share, label, 1 - label)
        for name, share in (("one", 0.9), ("one_swapped", 0.8), ("two", 0.7), ("two_swapped", 0.7))
    }
    rows = [
        {"id": n, "label": "AB"[label[n]], **{name: "AB"[classes[n]] for name, classes in said.items()}}
        for n in range(200)
    ]
    table = write_rows(tmp_path / "table.jsonl", rows)

    def columns(judge: str) -> tuple[str, ...]:
        return "--column", f"prediction={judge}", "--column", f"prediction_swapped={judge}_swapped"

    labelled = ("--column", "label=label")
    # Both orders agree, or the verdict is a tie.
    classes = {
        name: np.where(said[name] == said[f"{name}_swapped"], said[name], 2) for name in ("one", "two")
    }
    own = {name: cohen_kappa_score(found, label) for name, found in classes.items()}
    kappas = ("--protocol", "kappa", "--protocol", "kappa-one-order")
    printed = command("score", table, *columns("one"), *labelled, *kappas).stdout.splitlines()
    assert f"judge and label {own['one']:.4g}" in printed[0]
    assert ["(all orders combined)" in line for line in printed] == [True, False]
    assert ["(one order, drawn by seed)" in line for line in printed] == [False, True]
    people = ("--calibrate", table, *labelled)
    assert "all orders combined" in command("score", table, *columns("one"), *people).stdout
    both = (*columns("one"), *columns("two"), *labelled)
    (found,) = records(table, *both, "--protocol", "kappa", "--full")
    assert found["runs"] == ["one", "two"]
    sides = [found["first"]["judge and label"], found["second"]["judge and label"]]
    assert sides == pytest.approx([own["one"], own["two"]])
    (pair,) = found["agreement"]["pairs"]
    assert pair["kappa"]["value"] == pytest.approx(cohen_kappa_score(classes["one"], classes["two"]))
    lines = command("compare", table, *both, "--as", "latex").stdout.splitlines()
    assert lines[3] == r"judge & n & accuracy, \% & consistency, \% & kappa \\"
    assert [line.partition(" & ")[0] for line in lines[5:7]] == ["one", "two"]
    same = 100 * np.mean(said["one"] == said["one_swapped"])
    assert f"& {same:.1f} {{[}}" in lines[5]
    assert f"& {own['one']:.2f} {{[}}" in lines[5]
    full = command("compare", table, *both, "--full", "--as", "latex").stdout
    assert f"one, two & {100 * np.mean(classes['one'] == classes['two']):.1f} {{[}}" in full
    for words in (
        (table, *columns("one")),
        (table, table, table, *both),
        (table, *both, *columns("one")[:2]),
    ):
        assert command("compare", *words).exit_code == 2
    done = command("score", table, *both)
    assert (done.exit_code, "prediction is in two columns, 'one' and 'two'" in done.stderr) == (2, True)
