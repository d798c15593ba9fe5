"""Precision, recall and F1 of one class, beside scikit-learn on published verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sklearn.metrics import precision_recall_fscore_support

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval_inputs import figures, lines, records
from tirjudge.statistics.proportions import wilson_interval

PEOPLE, JUDGE = "pandalm/testset-v1.json", "pandalm/pandalm-7b-testset-v1.json"


def test_each_class_of_published_verdicts_as_scikit_learn_has_it() -> None:
    people = {row["idx"]: row for row in json.loads(benchmark_file(PEOPLE).read_text())}
    judged = {row["idx"]: row["pandalm_result"] for row in json.loads(benchmark_file(JUDGE).read_text())}
    gold = [max(votes := [people[id][f"annotator{n}"] for n in (1, 2, 3)], key=votes.count) for id in judged]
    found = figures("three-class", benchmark_file(JUDGE), "--labels", benchmark_file(PEOPLE))
    every = precision_recall_fscore_support(gold, list(judged.values()), labels=[1, 2, 0])
    for number, name in enumerate(("A", "B", "tie")):
        for measure, values in zip(("precision", "recall", "F1"), every, strict=False):
            assert found[f"{measure} of {name}"] == pytest.approx(values[number]), (measure, name)


def test_the_interval_of_a_class_is_that_of_its_rows(tmp_path: Path) -> None:
    """Of 40 verdicts for A 30 are right, and 30 of 50 labels of A are found."""
    kinds = [("A", "A", 30), ("A", "B", 10), ("B", "A", 20), ("B", "B", 40)]
    rows = [{"said": said, "label": label} for said, label, count in kinds for _ in range(count)]
    words = ("--column", "prediction=said", "--column", "label=label", "--protocol", "two-class")
    (record,) = records("score", lines(tmp_path / "run.jsonl", rows), *words)
    for figure, right, total in (("precision of A", 30, 40), ("recall of A", 30, 50)):
        found = record["figures"][figure]
        assert (found["value"], found["n"]) == (right / total, total)
        assert [found["low"], found["high"]] == pytest.approx(wilson_interval(right, total))
