"""`tirjudge score FILE --column ...`: files without a reader of their own, scored by options alone.

The files have the columns that their projects publish; the scores are computed by hand from the rows below.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval_inputs import command, figures, lines, records, refused


def array(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1))
    return path


# Five formats without a reader


def llmbar(label: int, first: str | None, swapped: str | None) -> dict[str, Any]:
    """princeton-nlp/LLMBar, result.json: with the outputs swapped, the winner is named as in the row."""
    games = {"swap = False": {"completion": ["...", "stop"], "winner": first}}
    games["swap = True"] = {"completion": ["...", "stop"], "winner": swapped}
    return {"input": "i", "output_1": "x", "output_2": "y", "label": label, "results": [games]}


def test_llmbar(tmp_path: Path) -> None:
    """Right in the first order: 3 of 5; with the outputs swapped 3 of 5; in both 2 of 5."""
    run = array(
        tmp_path / "result.json",
        [
            llmbar(1, "1", "1"),
            llmbar(2, "2", "2"),
            llmbar(2, "1", "2"),
            llmbar(1, "1", "2"),
            llmbar(1, None, "2"),
        ],
    )
    options = ("score", run, "--column", "prediction=results.-1.swap = False.winner", "label=label")
    options = (
        *options,
        "--column",
        "prediction_swapped=results.-1.swap = True.winner",
        "--labels",
        "1=A,2=B",
    )
    got = {record["protocol"]: record["figures"] for record in records(tmp_path, *options)}
    assert got["both-orders"]["accuracy"]["value"] == 2 / 5
    assert figures(tmp_path, "first-order", *options)["accuracy"] == 3 / 5
    assert figures(tmp_path, "second-order", *options)["accuracy"] == 3 / 5


def test_auto_j(tmp_path: Path) -> None:
    """GAIR-NLP/auto-j: 0, 1 and 2 (tie) in three files, joined by position; the exchanged one names places.

    Agreement in the first order is 3 of 5. Mapped back, the exchanged verdicts are 0, 1, 2, 1, 0; of the rows
    without a gold tie (1, 2, 4, 5), those right in both orders are 1 and 2. In three classes the third row,
    a tie in both orders and in the labels, agrees as well.
    """
    run = lines(tmp_path / "output.jsonl", [{"output": one} for one in (0, 1, 2, 0, 0)])
    exchanged = lines(tmp_path / "exchange.jsonl", [{"output": one} for one in (1, 0, 2, 0, 1)])
    source = lines(
        tmp_path / "testdata_pairwise.jsonl",
        [{"scenario": "s", "label": one, "prompt": "p"} for one in (0, 1, 2, 1, 1)],
    )
    options = (
        "score",
        run,
        "--column",
        "prediction=output",
        "--labels",
        source,
        "--labels",
        "0=A,1=B,2=tie",
    )
    assert figures(tmp_path, "three-class", *options)["agreement"] == 3 / 5
    both = (*options, "--swapped", exchanged)
    assert figures(tmp_path, "both-orders", *both)["accuracy"] == 2 / 4
    assert figures(tmp_path, "position", *both)["consistency"] == 4 / 5
    agreement = {"agreement": 3 / 5, "consistency": 4 / 5}
    assert figures(tmp_path, "three-class-both-orders", *both) == agreement


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
    """Auto-J's README: agreement 54.96, consistency 83.41."""
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
    options = (*options, "--labels", "0=A,1=B,2=tie")
    got = figures(tmp_path, "three-class-both-orders", "score", run, *options)
    assert {name: round(100 * value, 2) for name, value in got.items()} == {
        "agreement": 54.96,
        "consistency": 83.41,
    }


def test_rewardbench_scores(tmp_path: Path) -> None:
    """allenai/reward-bench, eval-set-scores: one object of lists. Chat is (100 * 1/2 + 95 * 1/2) / 195."""
    scores = {
        "subset": ["alpacaeval-easy", "alpacaeval-easy", "alpacaeval-length", "hep-go"],
        "id": [0, 1, 0, 0],
        "scores_chosen": [1.5, -2.0, 0.25, 3.0],
        "scores_rejected": [0.5, 1.0, 0.25, 2.0],
        "results": [1, 0, 0.5, 1],
        "model": "m",
        "model_type": "Seq. Classifier",
    }
    run = tmp_path / "model.json"
    run.write_text(json.dumps(scores))
    options = ("score", run, "--column", "id=subset+id", "--column", "domain=subset")
    options = (*options, "--column", "score_chosen=scores_chosen", "score_rejected=scores_rejected")
    got = figures(tmp_path, "rewardbench", *options)
    assert got == {"mean of sections": 0.75, "Chat": 0.5, "Reasoning": 1.0}


def test_chatbot_arena_votes(tmp_path: Path) -> None:
    """lmarena-ai: the judge's `verdict` against people's `winner`, in a CSV table. 2 of 3 right, 1 tie."""
    path = tmp_path / "votes.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["question_id", "model_a", "model_b", "winner", "verdict"])
        table.writerows(
            [
                ["q1", "x", "y", "model_a", "model_a"],
                ["q2", "x", "y", "model_b", "tie"],
                ["q3", "y", "x", "tie (bothbad)", "model_b"],
                ["q4", "x", "y", "model_b", "model_b"],
            ]
        )
    names = "model_a=A,model_b=B,tie=tie,tie (bothbad)=tie"
    options = (
        "score",
        path,
        "--column",
        "id=question_id",
        "prediction=verdict",
        "label=winner",
        "--labels",
        names,
    )
    assert figures(tmp_path, "one-order", *options)["accuracy"] == pytest.approx(2 / 3)
    assert figures(tmp_path, "tir", *options)["accuracy"] == pytest.approx(2.5 / 3)
    assert figures(tmp_path, "three-class", *options)["agreement"] == pytest.approx(2 / 4)


def test_mt_bench_judgments(tmp_path: Path) -> None:
    """lm-sys/FastChat, gpt-4_pair.jsonl and human judgments, joined by a key of three columns. 1 of 2."""
    run = lines(
        tmp_path / "gpt-4_pair.jsonl",
        [
            {"question_id": number, "model_1": "x", "model_2": "y", "g1_winner": first, "g2_winner": second}
            for number, first, second in (
                (81, "model_1", "model_1"),
                (82, "model_2", "tie"),
                (83, "error", "tie"),
            )
        ],
    )
    people = lines(
        tmp_path / "human.jsonl",
        [
            {"question_id": number, "model_1": "x", "model_2": "y", "winner": winner}
            for number, winner in ((83, "model_2"), (82, "model_2"), (81, "model_1"))
        ],
    )
    options = ("score", run, "--column", "id=question_id+model_1+model_2", "prediction=g1_winner")
    options = (*options, "prediction_swapped=g2_winner", "label=winner", "--labels", people)
    options = (*options, "--labels", "model_1=A,model_2=B,tie=tie,error=none")
    assert figures(tmp_path, "both-orders", *options)["accuracy"] == pytest.approx(1 / 3)
    assert figures(tmp_path, "net-vote", *options)["accuracy"] == pytest.approx(2 / 3)


def test_parquet_of_scores(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "scores.parquet"
    table = {"uid": ["a", "b", "c"], "s1": [1.0, 2.0, 3.0], "s2": [0.0, 3.0, 3.0], "best": ["A", "A", "B"]}
    parquet.write_table(pyarrow.table(table), path)
    options = ("score", path, "--column", "id=uid", "score_a=s1", "score_b=s2", "label=best")
    assert figures(tmp_path, "tir", *options)["accuracy"] == pytest.approx(1.5 / 3)


# Published figures by options alone


def test_rmb_scores_by_columns_give_the_files_own_accuracy(tmp_path: Path) -> None:
    options = ("--column", "id=pair_uid", "score_chosen=chosen_reward", "score_rejected=reject_reward")
    run = benchmark_file("rmb/armorm-pairwise-helpfulness.json")
    assert round(100 * figures(tmp_path, "one-order", "score", run, *options)["accuracy"], 3) == 79.505


def test_judgebench_decisions_by_columns_give_the_published_score(tmp_path: Path) -> None:
    run = benchmark_file("judgebench/judge-reward-model-skywork-gemma-2-27b.jsonl")
    options = (
        "--column",
        "id=pair_id",
        "prediction=judgments.0.decision",
        "place_swapped=judgments.1.decision",
    )
    assert (
        round(100 * figures(tmp_path, "net-vote", "score", run, *options, "label=label")["accuracy"], 2)
        == 64.29
    )


# Several files, globs and standard input

VERDICTS = [{"q": f"q{number}", "p": "AB"[number % 2], "gold": "A"} for number in range(10)]
COLUMNS = ("--column", "id=q", "--column", "prediction=p", "--column", "label=gold")


def test_several_files_and_globs_are_one_run(tmp_path: Path) -> None:
    first, second = (
        lines(tmp_path / f"part-{place}.jsonl", VERDICTS[place * 5 : place * 5 + 5]) for place in (0, 1)
    )
    whole = lines(tmp_path / "whole.jsonl", VERDICTS)
    expected = figures(tmp_path, "one-order", "score", whole, *COLUMNS)
    assert expected["accuracy"] == 1 / 2
    for files in ((first, second), (first, second), (tmp_path / "part-*.jsonl",)):
        assert figures(tmp_path, "one-order", "score", *files, *COLUMNS) == expected
    (record,) = records(
        tmp_path, "compare", whole, tmp_path / "part-*.jsonl", *COLUMNS, "--protocol", "one-order"
    )
    assert (record["common"], record["left_out"]) == (10, 0)
    assert "two rows have the id 'q0'" in refused("score", first, whole, *COLUMNS)
    assert f"no file matches {tmp_path}/none-*.jsonl" in refused("score", tmp_path / "none-*.jsonl", *COLUMNS)


def test_rows_without_ids_of_several_files_are_different_rows(tmp_path: Path) -> None:
    files = [lines(tmp_path / f"{name}.jsonl", [{"p": "A", "gold": "A"}]) for name in "ab"]
    (record,) = records(
        tmp_path, "score", *files, "--column", "prediction=p", "label=gold", "--protocol", "tir"
    )
    assert record["units"] == 2


def test_standard_input_is_scored_under_every_protocol(tmp_path: Path) -> None:
    content = lines(tmp_path / "run.jsonl", VERDICTS).read_bytes()
    arguments = ["score", "-", *COLUMNS, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", "from tirjudge.cli import main; main()", *arguments],
        input=content,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert {record["protocol"] for record in json.loads(done.stdout)} == {
        "one-order",
        "tir",
        "three-class",
    }


# Wrong columns, labels and values are refused


@pytest.mark.parametrize(
    ("row", "columns", "reason"),
    [
        ({"p": "A"}, ("prediction=q",), "run.jsonl:1: no column 'q' (named as prediction)"),
        (
            {"p": "maybe", "label": "A"},
            ("prediction=p",),
            'run.jsonl:1: p is "maybe", which is no letter from A to B',
        ),
        ({"p": 2, "label": "A"}, ("prediction=p",), "run.jsonl:1: p is 2, which is no letter from A to B"),
        (
            {"p": 1, "label": "A"},
            ("prediction=p",),
            "run.jsonl:1: p is never 0, so that its numbers may not be indices",
        ),
        (
            {"p": "A", "g": 3},
            ("prediction=p", "label=g"),
            "run.jsonl:1: g is 3, which is no letter from A to B",
        ),
        ({"a": "x", "b": 1}, ("score_a=a", "score_b=b"), 'run.jsonl:1: a is "x", not a finite number'),
        ({"a": 1}, ("score_a=a",), "--column needs both score_a=COLUMN and score_b=COLUMN"),
        ({"a": 1}, ("id=a",), "--column needs either prediction=COLUMN"),
        ({"p": "A", "d": ""}, ("prediction=p", "domain=d"), 'run.jsonl:1: d is "", not a domain'),
        (
            {"p": "A"},
            ("winner=p",),
            "'winner=p' is no mapping: write PART=COLUMN, PART being one of id, prediction",
        ),
        ({"p": ["A"], "label": ["A", "B"]}, ("prediction=p",), "run.jsonl:1: label has 2 values, not 1"),
        ({"p": ["A", "?"], "label": ["A", "B"]}, ("prediction=p",), 'place 2 of the lists: p is "?"'),
    ],
)
def test_wrong_columns_and_values_are_named(
    tmp_path: Path, row: dict[str, Any], columns: tuple[str, ...], reason: str
) -> None:
    run = lines(tmp_path / "run.jsonl", [row])
    assert reason in refused("score", run, "--column", *columns)


def test_labels_and_swapped_files_that_do_not_fit(tmp_path: Path) -> None:
    run = lines(tmp_path / "run.jsonl", VERDICTS)
    assert "belongs to --column" in refused("score", run, "--labels", "1=A")
    fewer = lines(tmp_path / "fewer.jsonl", VERDICTS[:9])
    assert f"{run} has more than the 9 rows of {fewer}" in refused("score", run, *COLUMNS, "--swapped", fewer)
    moved = lines(tmp_path / "moved.jsonl", VERDICTS[1:] + VERDICTS[:1])
    assert f'{moved}:1: its id is "q1", but that of the row in its place is "q0"' in refused(
        "score", run, *COLUMNS, "--swapped", moved
    )
    assert "leave out --format" in refused("score", run, *COLUMNS, "--format", "rmb")
    unknown = refused("score", run)
    assert "--column prediction=COLUMN label=COLUMN reads any other" in unknown
    assert command("score", run, "--column", "prediction=p").exit_code == 2
