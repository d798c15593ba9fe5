"""`tirjudge score FILE --column ...`: files without a reader of their own, scored by options alone.

The files have the columns that their projects publish; the scores are computed by hand from the rows below.
"""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import cohen_kappa_score, f1_score
from statsmodels.stats.inter_rater import cohens_kappa

from tests.command import TIRJUDGE
from tests.tirjudge.cli.test_eval_inputs import array, figures, lines, records, refused
from tests.tirjudge.judge_command import command
from tests.tirjudge.judge_command import write_rows as write


def test_llmbar(tmp_path: Path) -> None:
    """princeton-nlp/LLMBar, result.json: with the outputs swapped, the winner is named as in the row.

    Right in the first order: 3 of 5; with the outputs swapped 3 of 5; in both 2 of 5.
    """

    def row(label: int, first: str | None, swapped: str | None) -> dict[str, Any]:
        games = {"swap = False": {"winner": first}, "swap = True": {"winner": swapped}}
        return {"input": "i", "output_1": "x", "output_2": "y", "label": label, "results": [games]}

    games = [(1, "1", "1"), (2, "2", "2"), (2, "1", "2"), (1, "1", "2"), (1, None, "2")]
    run = array(tmp_path / "result.json", [row(*one) for one in games])
    places = ("prediction=results.-1.swap = False.winner", "label=label")
    options = (run, "--column", *places, "--labels", "1=A,2=B")
    options = (*options, "--column", "prediction_swapped=results.-1.swap = True.winner")
    assert figures("both-orders", *options)["accuracy"] == 2 / 5
    assert figures("first-order", *options)["accuracy"] == 3 / 5
    assert figures("second-order", *options)["accuracy"] == 3 / 5


AUTO_J = """
000:15 001:376 002:2 010:69 011:41 012:4 020:3 021:5 022:5 100:14 101:58 102:3 110:370
111:35 112:6 120:6 121:1 122:6 200:26 201:124 202:4 210:134 211:45 212:9 220:3 221:9
222:19
"""
"""Auto-J's 1,392 published pairs, counted by label, verdict and verdict on the exchanged responses.

From GAIR-NLP/auto-j: data/test/testdata_pairwise.jsonl, data/outputs/pairwise_example_output.jsonl and
pairwise_exchange_example_output.jsonl. `010:7` are 7 pairs with the label 0 and the outputs 1 and 0.
"""


def test_auto_js_published_outputs_give_its_published_agreement(tmp_path: Path) -> None:
    """Three files, joined by position. Auto-J's README: agreement 54.96, consistency 83.41."""
    counts = [one.partition(":") for one in AUTO_J.split()]
    rows = [tuple(map(int, kind)) for kind, _, count in counts for _ in range(int(count))]
    assert len(rows) == 1392
    labels, run, exchanged = (
        lines(tmp_path / f"{name}.jsonl", [{column: row[place]} for row in rows])
        for place, (name, column) in enumerate(
            (("testdata_pairwise", "label"), ("output", "output"), ("exchange", "output"))
        )
    )
    options = ("--swapped", exchanged, "--column", "prediction=output", "--labels", labels)
    got = figures("three-class-both-orders", run, *options, "--labels", "0=A,1=B,2=tie")
    assert [round(100 * got[name], 2) for name in ("agreement", "consistency")] == [54.96, 83.41]


def test_rewardbench_scores(tmp_path: Path) -> None:
    """allenai/reward-bench, eval-set-scores: one object of lists. Chat is (100 * 1/2 + 95 * 1/2) / 195."""
    scores = {
        "subset": ["alpacaeval-easy", "alpacaeval-easy", "alpacaeval-length", "hep-go"],
        "id": [0, 1, 0, 0],
        "scores_chosen": [1.5, -2.0, 0.25, 3.0],
        "scores_rejected": [0.5, 1.0, 0.25, 2.0],
        "results": [1, 0, 0.5, 1],
        "model": "m",
    }
    run = tmp_path / "model.json"
    run.write_text(json.dumps(scores))
    places = ("domain=subset", "score_chosen=scores_chosen", "score_rejected=scores_rejected")
    got = figures("rewardbench", run, "--column", "id=subset+id", *places)
    assert got == {"mean of sections": 0.75, "Chat": 0.5, "Reasoning": 1.0}


def test_chatbot_arena_votes(tmp_path: Path) -> None:
    """lmarena-ai: the judge's `verdict` against people's `winner`, in a CSV table. 2 of 3 right, 1 tie."""
    path = tmp_path / "votes.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["question_id", "model_a", "model_b", "winner", "verdict"],
                ["q1", "x", "y", "model_a", "model_a"],
                ["q2", "x", "y", "model_b", "tie"],
                ["q3", "y", "x", "tie (bothbad)", "model_b"],
                ["q4", "x", "y", "model_b", "model_b"],
            ]
        )
    options = (path, "--column", "id=question_id", "prediction=verdict", "label=winner")
    options = (*options, "--labels", "model_a=A,model_b=B,tie=tie,tie (bothbad)=tie")
    assert figures("one-order", *options)["accuracy"] == pytest.approx(2 / 3)
    assert figures("tir", *options)["accuracy"] == pytest.approx(2.5 / 3)
    assert figures("three-class", *options)["agreement"] == pytest.approx(2 / 4)


def test_mt_bench_judgments(tmp_path: Path) -> None:
    """lm-sys/FastChat, gpt-4_pair.jsonl and human judgments, joined by a key of three columns. 1 of 2."""

    def row(number: int, **told: str) -> dict[str, Any]:
        return {"question_id": number, "model_1": "x", "model_2": "y", **told}

    games = [(81, "model_1", "model_1"), (82, "model_2", "tie"), (83, "error", "tie")]
    run = lines(tmp_path / "gpt-4_pair.jsonl", [row(n, g1_winner=a, g2_winner=b) for n, a, b in games])
    votes = [(83, "model_2"), (82, "model_2"), (81, "model_1")]
    people = lines(tmp_path / "human.jsonl", [row(number, winner=winner) for number, winner in votes])
    places = ("id=question_id+model_1+model_2", "prediction=g1_winner", "prediction_swapped=g2_winner")
    options = (run, "--column", *places, "label=winner", "--labels", people)
    options = (*options, "--labels", "model_1=A,model_2=B,tie=tie,error=none")
    assert figures("both-orders", *options)["accuracy"] == pytest.approx(1 / 3)
    assert figures("net-vote", *options)["accuracy"] == pytest.approx(2 / 3)


def test_parquet_of_scores(tmp_path: Path) -> None:
    table = {"uid": ["a", "b", "c"], "s1": [1.0, 2.0, 3.0], "s2": [0.0, 3.0, 3.0], "best": ["A", "A", "B"]}
    parquet.write_table(pyarrow.table(table), tmp_path / "scores.parquet")
    places = ("id=uid", "score_a=s1", "score_b=s2", "label=best")
    found = figures("tir", tmp_path / "scores.parquet", "--column", *places)
    assert found["accuracy"] == pytest.approx(1.5 / 3)


# Several files, globs and standard input

VERDICTS = [{"q": f"q{number}", "p": "AB"[number % 2], "gold": "A"} for number in range(10)]
COLUMNS = ("--column", "id=q", "--column", "prediction=p", "--column", "label=gold")


def test_several_files_and_globs_are_one_run(tmp_path: Path) -> None:
    files = [lines(tmp_path / f"part-{n}.jsonl", VERDICTS[n * 5 : n * 5 + 5]) for n in (0, 1)]
    whole, pattern = lines(tmp_path / "whole.jsonl", VERDICTS), tmp_path / "part-*.jsonl"
    for given in ([whole], files, [pattern]):
        assert figures("one-order", *given, *COLUMNS)["accuracy"] == 1 / 2
    (record,) = records("compare", whole, pattern, *COLUMNS, "--protocol", "one-order")
    assert (record["common"], record["left_out"]) == (10, 0)
    assert "two rows have the id 'q0'" in refused("score", files[0], whole, *COLUMNS)
    assert f"no file matches {tmp_path}/none-*.jsonl" in refused("score", tmp_path / "none-*.jsonl", *COLUMNS)


def test_rows_without_ids_of_several_files_are_different_rows(tmp_path: Path) -> None:
    files = [lines(tmp_path / f"{name}.jsonl", [{"p": "A", "gold": "A"}]) for name in "ab"]
    places = ("--column", "prediction=p", "label=gold", "--protocol", "tir")
    (record,) = records("score", *files, *places)
    assert record["units"] == 2


@pytest.mark.slow
def test_standard_input_is_scored_under_every_protocol(tmp_path: Path) -> None:
    content = lines(tmp_path / "run.jsonl", VERDICTS).read_bytes()
    words = [TIRJUDGE, "score", "-", *COLUMNS, "--json"]
    done = subprocess.run(words, input=content, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    protocols = {record["protocol"] for record in json.loads(done.stdout)}
    assert protocols == {"one-order", "tir", "three-class"}


@pytest.mark.parametrize(
    ("row", "places", "reason"),
    [
        ({"p": "A"}, ("prediction=q",), ":1: no column 'q' (named as prediction)"),
        ({"p": "maybe", "label": "A"}, ("prediction=p",), ':1: p is "maybe", which is no letter from A to B'),
        ({"p": 1, "label": "A"}, ("prediction=p",), ":1: p is never 0"),
        ({"p": "A", "g": 3}, ("prediction=p", "label=g"), ":1: g is 3, which is no letter from A to B"),
        ({"a": "x", "b": 1}, ("score_a=a", "score_b=b"), ':1: a is "x", not a finite number'),
        ({"a": 1}, ("score_a=a",), "--column needs both score_a=COLUMN and score_b=COLUMN"),
        ({"p": "A"}, ("winner=p",), "'winner=p': write PART=COLUMN"),
        ({"p": ["A"], "label": ["A", "B"]}, ("prediction=p",), ":1: label has 2 values, not 1"),
        ({"p": ["A", "?"], "label": ["A", "B"]}, ("prediction=p",), ', item 2: p is "?"'),
    ],
)
def test_wrong_columns_and_values_are_named(
    tmp_path: Path, row: dict[str, Any], places: tuple[str, ...], reason: str
) -> None:
    run = lines(tmp_path / "run.jsonl", [row])
    assert reason in refused("score", run, "--column", *places)


def test_labels_and_swapped_files_that_do_not_fit(tmp_path: Path) -> None:
    run = lines(tmp_path / "run.jsonl", VERDICTS)
    assert "belongs to --column" in refused("score", run, "--labels", "1=A")
    fewer = lines(tmp_path / "fewer.jsonl", VERDICTS[:9])
    assert f"{run} has more than the 9 rows of {fewer}" in refused("score", run, *COLUMNS, "--swapped", fewer)
    moved = lines(tmp_path / "moved.jsonl", VERDICTS[1:] + VERDICTS[:1])
    assert f'{moved}:1: its id is "q1"' in refused("score", run, *COLUMNS, "--swapped", moved)
    assert "leave out --format" in refused("score", run, *COLUMNS, "--format", "rmb")
    assert command("score", run, "--column", "prediction=p").exit_code == 2


def test_a_list_of_verdicts_has_samples_of_one_row(tmp_path: Path) -> None:
    """200 rows of three verdicts: the majority of A, A and B is right, that of B, B and A is not."""
    rows = [{"id": n, "p": list("AAB" if n % 4 else "BBA"), "l": "A"} for n in range(200)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l", "--json")
    done = command("score", run, *words, code=0)
    found = {one["protocol"]: one["figures"] for one in json.loads(done.stdout)}
    assert found["self-consistency"]["SC@3"] | {"low": 0, "high": 0} == {
        "value": 0.75, "low": 0, "high": 0, "n": 200
    }  # fmt: skip
    assert found["self-consistency"]["mean of single samples"]["value"] == pytest.approx(7 / 12)
    assert (found["one-order"]["accuracy"]["value"], found["one-order"]["accuracy"]["n"]) == (0.75, 200)
    scores = [{"id": n, "a": [1, 3], "b": [2, 1 + n % 2], "l": "A"} for n in range(20)]
    run = write(tmp_path / "scores.jsonl", scores)
    words = ("--column", "score_a=a", "--column", "score_b=b", "--column", "label=l", "--json")
    found = {one["protocol"]: one["figures"] for one in json.loads(command("score", run, *words).stdout)}
    assert found["mean-score"]["mean-score@2"]["value"] == 0.5 + 0.5 * (2 > 1.5 + 0.5)
    assert found["mean-score"]["mean-score@2"]["n"] == 20
    run = write(tmp_path / "uneven.jsonl", [{"id": 1, "p": ["A", "B"], "q": ["A"]}] * 2)
    done = command("score", run, "--column", "prediction=p", "--column", "prediction_swapped=q", code=2)
    assert "uneven.jsonl:1: q has 1 samples, others differ" in done.stderr


def test_missing_verdicts_that_count_as_ties_are_printed_beside_the_figure(tmp_path: Path) -> None:
    rows = [{"id": n, "p": ("A", "B", "")[n % 3], "l": ("A", "B", "tie")[n % 3]} for n in range(90)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l", "--protocol", "kappa")
    words += ("--protocol", "three-class")
    for line in command("score", run, *words).stdout.splitlines():
        assert ", 30 missing verdicts counted as ties (run.jsonl)" in line
    other = write(tmp_path / "other.jsonl", [row | {"p": row["p"] or "tie"} for row in rows])
    for line in command("compare", run, other, *words).stdout.splitlines():
        assert ", 30 and 0 missing verdicts counted as ties" in line


def test_swapped_verdicts_that_name_places_are_refused(tmp_path: Path) -> None:
    """A judge that is consistent in 86 % of the rows would be consistent in 14 %."""
    rows = [{"p": "AB"[n % 2], "q": "AB"[(n % 2) ^ (n % 7 > 0)], "l": "A"} for n in range(70)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l")
    done = command("score", run, *words, "--column", "prediction_swapped=q", code=2)
    assert "86% of the verdicts name another response in the other order" in done.stderr
    assert "give them as place_swapped" in done.stderr
    done = command("score", run, *words, "--column", "place_swapped=q", "--protocol", "position")
    assert "consistency 85.71 %" in done.stdout
    # A judge that always names the first place is inconsistent, and no names are misread.
    always = write(tmp_path / "always.jsonl", [row | {"p": "A", "q": "B"} for row in rows])
    done = command("score", always, *words, "--column", "prediction_swapped=q", "--protocol", "position")
    assert "consistency 0.00 %" in done.stdout


def test_sections_that_differ_in_case_or_spaces_are_named(tmp_path: Path) -> None:
    names = ("math", "Math ", "code")
    rows = [{"id": n, "p": "A", "l": "A", "section": names[n % 3]} for n in range(30)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l", "--column", "domain=section")
    done = command("score", run, *words, code=0)
    assert "sections that differ only in case or spaces: 'Math ', 'math'" in done.stderr


def test_an_empty_score_is_no_verdict(tmp_path: Path) -> None:
    rows = [{"id": n, "a": 2, "b": "" if n < 3 else 1, "l": "A"} for n in range(10)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "score_a=a", "--column", "score_b=b", "--column", "label=l", "--protocol", "tir")
    done = command("score", run, *words)
    assert "accuracy 70.00 %" in done.stdout


def test_a_value_with_two_meanings_is_refused(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", [{"p": "1", "l": "1"}])
    words = ("--column", "prediction=p", "--column", "label=l", "--labels", "1=A,1=B")
    done = command("score", run, *words, code=2)
    assert "--labels gives '1' two meanings, 'A' and 'B'" in done.stderr


def test_the_files_of_two_judges_are_sent_to_compare(tmp_path: Path) -> None:
    rows = [{"id": n, "p": "AB"[n % 2], "l": "A"} for n in range(30)]
    first, second = (write(tmp_path / name, rows) for name in ("a judge.jsonl", "b.jsonl"))
    words = ("--column", "prediction=p", "--column", "label=l")
    done = command("score", first, second, *words, code=2)
    advice = f"tirjudge compare '{first}' {second}"
    assert advice in done.stderr
    assert "--duplicates" not in done.stderr
    assert command("compare", *shlex.split(advice)[2:], *words).exit_code == 0


def test_accuracy_over_parsed_verdicts_is_named_beside_the_strict_one(tmp_path: Path) -> None:
    rows = [{"id": n, "p": "" if n < 20 else "AB"[n % 4 == 0], "l": "A"} for n in range(100)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l", "--protocol", "tir", "--protocol", "verdict")
    for one in json.loads(command("score", run, *words, "--json").stdout):
        assert (one["figures"]["accuracy"]["value"], one["figures"]["accuracy"]["n"]) == (0.6, 100)
        parsed = one["figures"]["accuracy over parsed verdicts"]
        assert (parsed["value"], parsed["n"]) == (0.75, 80)


def test_kappa_classes_and_ratings_have_numbers_by_section(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    label = draw.integers(0, 2, 400)
    said = np.where(draw.random(400) < 0.8, label, 1 - label)
    rows = [
        {"id": n, "p": "AB"[said[n]], "l": "AB"[label[n]], "s": "xy"[n % 2], "r": int(said[n] + n % 3)}
        for n in range(400)
    ]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("--column", "prediction=p", "--column", "label=l", "--column", "domain=s", "--json")
    done = command("score", run, *words, "--protocol", "kappa", "--protocol", "three-class")
    kappa, classes = (one["figures"] for one in json.loads(done.stdout))
    for number, name in enumerate("xy"):
        one, other = said[number::2], label[number::2]
        found = kappa[f"judge and label, {name}"]
        assert (found["value"], found["n"]) == (pytest.approx(cohen_kappa_score(one, other)), 200)
        table = np.array([[((one == a) & (other == b)).sum() for b in (0, 1)] for a in (0, 1)])
        error = cohens_kappa(table).std_kappa
        assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * error, rel=0.05)
        assert classes[name]["value"] == pytest.approx((one == other).mean())
        f1 = classes[f"F1 of {name}"]
        assert f1["value"] == pytest.approx(f1_score(other, one, average="macro"))
        assert f1["low"] < f1["value"] < f1["high"]
    words = ("--column", "rating=r", "--column", "label=num", "--column", "domain=s", "--json")
    rated = write(tmp_path / "rated.jsonl", [row | {"num": int(label[row["id"]])} for row in rows])
    (ratings,) = (one["figures"] for one in json.loads(command("score", rated, *words).stdout))
    own = np.array([row["r"] for row in rows])
    found = ratings["Pearson, y"]
    assert (found["value"], found["n"]) == (pytest.approx(pearsonr(own[1::2], label[1::2]).statistic), 200)
    assert ratings["Spearman, y"]["value"] == pytest.approx(spearmanr(own[1::2], label[1::2]).statistic)
