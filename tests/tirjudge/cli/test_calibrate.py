"""`tirjudge score --calibrate` and `tirjudge judge --abstain-below`, which leaves verdicts open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command, results, write_rows
from tests.tirjudge.judged_files import FAST, edit

PEOPLE = "pandalm/testset-v1.json"


def calibration(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    done = command(*arguments, "--json", code=exit_code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def judge(folder: Path, server: EndpointServer, *arguments: object, code: int | None = None) -> Result:
    output = folder / "verdicts.jsonl"
    words = ("--output", output, "--model", "m", "--base-url", server.url, *FAST)
    return command("judge", folder / "rows.jsonl", *words, *arguments, code=code)


def pair(id: str, first: str, second: str, label: str) -> dict[str, Any]:
    return {"id": id, "prompt": f"Q {id}: which is better?", "responses": [first, second], "label": label}


def kappas(found: dict[str, Any]) -> dict[str, float]:
    return {" and ".join(one["raters"]): one["kappa"]["value"] for one in found["agreement"]}


def test_published_verdicts_on_pandalm_agree_with_each_annotator() -> None:
    """Agreement of JudgeLRM, Table 1, and the annotators' kappas of PandaLM's README."""
    run = benchmark_file("judgelrm/results_judgelrm3b.json")
    words = ("score", run, "--calibrate", benchmark_file(PEOPLE), "--confidence", "margin")
    found = calibration(*words, "--target-risk", 0.2)
    by_raters = {" and ".join(one["raters"]): one for one in found["agreement"]}
    assert round(100 * by_raters["judge and majority"]["agreement"]["value"], 2) == 77.68
    people = ("annotator1 and annotator2", "annotator1 and annotator3", "annotator2 and annotator3")
    assert [round(kappas(found)[one], 2) for one in people] == [0.85, 0.88, 0.86]
    assert all(
        one["kappa"]["low"] < one["kappa"]["value"] < one["kappa"]["high"] for one in found["agreement"]
    )
    assert found["base_rates"]["annotator1"] == {"A": 427 / 999, "B": 475 / 999, "tie": 97 / 999, "n": 999}
    # The verdicts with the largest margins are wrong less often than all of them.
    assert found["curve"][2]["risk"]["high"] < found["curve"][-1]["risk"]["low"]
    assert found["aurc"]["best"] < found["aurc"]["value"] < found["aurc"]["random"]
    assert found["threshold"]["holds"]
    chosen, verified = found["threshold"]["chosen"], found["threshold"]["verified"]
    assert chosen["threshold"] == verified["threshold"]
    assert chosen["coverage"]["n"] + verified["coverage"]["n"] == 999
    # A threshold of 0 keeps everything, and judge would refuse it.
    kept = command(*words, "--target-risk", 0.9).stdout
    assert "threshold 0 of margin" in kept
    assert "no verdict needs to be left open" in kept
    assert "--abstain-below" not in kept


def test_published_judges_as_reruns_of_each_other_vote() -> None:
    people = benchmark_file(PEOPLE)
    words = ["score", benchmark_file("pandalm/pandalm-7b-testset-v1.json"), "--labels", people]
    words += ["--calibrate", people, "--rerun", benchmark_file("pandalm/gpt-3.5-turbo-testset-v1.json")]
    words += ["--rerun", benchmark_file("judgelrm/results_judgelrm3b.json")]
    found = calibration(*words, "--target-risk", 0.01, exit_code=1)
    accuracies = [round(100 * one["value"], 2) for one in found["variance"]["reruns"]["accuracies"]]
    assert (accuracies[0], accuracies[2]) == (66.77, 77.68)  # PandaLM's README; JudgeLRM, Table 1
    unanimous, everything = found["curve"][0], found["curve"][-1]
    assert unanimous["threshold"] == 1
    assert unanimous["risk"]["high"] < everything["risk"]["low"]
    assert found["threshold"]["chosen"] is None
    # Rounded up, two thirds of the votes would not reach the threshold that is printed for them.
    assert "\n0.6666 " in command(*words).stdout
    # A single vote has no share, with which judge would refuse the option.
    advised = command(*words, "--target-risk", 0.25).stdout
    assert "\ntirjudge judge ROWS --samples 3 --abstain-below " in advised


def first_shown(body: dict[str, Any]) -> dict[str, Any]:
    """Choose the longer response, but the one shown first where the prompt says `biased`."""
    text = body["messages"][-1]["content"]
    longer = "A" if text.index("long") < text.index("tiny") else "B"
    return chat(f"<preference>{'A' if 'biased' in text else longer}</preference>")


def test_a_vote_share_leaves_rows_open(tmp_path: Path, server: EndpointServer) -> None:
    server.script = first_shown
    rows = [pair("sure", "long", "tiny", "A"), pair("biased", "tiny", "long", "B")]
    write_rows(tmp_path / "rows.jsonl", rows)
    done = judge(tmp_path, server, "--order", "both", "--no-tools", "--abstain-below", 0.7, code=0)
    assert "left open 1 of 2 rows" in done.stdout
    assert "accuracy  100.0% [20.7%, 100.0%], n = 1" in done.stdout
    sure, biased = sorted(
        results(tmp_path / "verdicts.jsonl"), key=lambda row: -len(str(row["verdict"] or ""))
    )
    assert (sure["verdict"], sure["stop"], sure["correct"]) == ("A", "verdict", 1.0)
    assert sure["confidence"] == {"name": "vote-share", "value": 1.0, "below": 0.7, "verdict": "A"}
    assert (biased["verdict"], biased["choice"], biased["correct"]) == (None, None, None)
    assert (biased["stop"], biased["detail"]) == ("abstained", "left open: vote-share 0 is below 0.7")
    assert biased["confidence"]["verdict"] == "tie"
    assert [view["verdict"]["choice"] for view in biased["views"]] == [0, 1]
    # The same command resumes, and another threshold would mix two rules in one file.
    again = judge(tmp_path, server, "--order", "both", "--no-tools", "--abstain-below", 0.7)
    assert (again.exit_code, len(results(tmp_path / "verdicts.jsonl"))) == (0, 2)
    other = judge(tmp_path, server, "--order", "both", "--no-tools", "--abstain-below", 0.4, code=2)
    assert "was begun with other settings (abstain_below was" in other.stderr
    # The file's verdicts follow from its views, and its confidences are those that eval computes.
    assert command("reproduce", tmp_path / "verdicts.jsonl").exit_code == 0
    labels = write_rows(tmp_path / "labels.jsonl", [{"id": row["id"], "label": row["label"]} for row in rows])
    found = calibration("score", tmp_path / "verdicts.jsonl", "--calibrate", labels)
    assert [(one["threshold"], one["coverage"]["value"]) for one in found["curve"]] == [(1, 0.5), (0, 1)]
    assert found["variance"]["orders"]["changed"]["value"] == 0.5
    shown = command("show", tmp_path / "verdicts.jsonl", "biased")
    assert "left open: vote-share 0 is below 0.7" in shown.stdout


def test_the_votes_on_criteria_are_aggregated(tmp_path: Path, server: EndpointServer) -> None:
    """A counts more than the biased criterion, so that both orders vote for the longer response."""
    server.script = first_shown
    criteria = [{"text": "length", "weight": 3}, {"text": "biased", "weight": 1}]
    row = {**pair("a", "long", "tiny", "A"), "criteria": criteria}
    write_rows(tmp_path / "rows.jsonl", [row])
    judge(tmp_path, server, "--order", "both", "--no-tools", "--abstain-below", 0.7, code=0)
    (judged,) = results(tmp_path / "verdicts.jsonl")
    assert (judged["verdict"], judged["confidence"]["value"]) == ("A", 1.0)
    assert command("reproduce", tmp_path / "verdicts.jsonl").exit_code == 0
    labels = [{"id": "a", "annotators": ["A", "A", "B"]}]
    found = calibration(
        "score", tmp_path / "verdicts.jsonl", "--calibrate", write_rows(tmp_path / "l", labels)
    )
    assert [one["threshold"] for one in found["curve"]] == [1.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row.update(verdict="B", stop="verdict", choice=1, correct=1.0), ""),
        (
            lambda row: row["confidence"].update(value=0.9),
            "the file says vote-share 0.9, and its views together say 0.0",
        ),
        (lambda row: row["confidence"].update(verdict="B"), ""),
        (lambda row: row.pop("confidence"), ""),
    ],
    ids=["verdict", "value", "held verdict", "no confidence"],
)
def test_a_row_that_was_falsely_opened_or_decided_is_found(
    change: Any, said: str, tmp_path: Path, server: EndpointServer
) -> None:
    server.script = first_shown
    write_rows(tmp_path / "rows.jsonl", [pair("biased", "tiny", "long", "B")])
    judge(tmp_path, server, "--order", "both", "--no-tools", "--abstain-below", 0.7)
    edit(tmp_path / "verdicts.jsonl", lambda rows: change(rows[0]))
    done = command("reproduce", tmp_path / "verdicts.jsonl", code=1)
    assert "verdict changed      1\n" in done.stdout
    assert said in done.stdout


def verdict_rows(count: int, **names: str) -> list[dict[str, Any]]:
    """Verdicts of which three in four are right about `labels`; each name is a column with a row's key."""
    keys = [{column: template.format(n) for column, template in names.items()} for n in range(count)]
    return [key | {"p": "AB"[(n % 2) ^ (n % 4 == 3)]} for n, key in enumerate(keys)]


def right(count: int) -> list[str]:
    return ["AB"[n % 2] for n in range(count)]


PREDICTION = ("--column", "prediction=p")


def test_annotators_that_the_first_row_lacks_are_read(tmp_path: Path) -> None:
    """Of 200 rows, 88 have only the third annotator, who is missing in the first row."""
    run = write_rows(tmp_path / "run.jsonl", verdict_rows(200, id="{}"))
    people = [
        {"id": n, "annotators": {"c": one} if n >= 112 else {"a": one, "b": one}}
        for n, one in enumerate(right(200))
    ]
    found = calibration("score", run, *PREDICTION, "--calibrate", write_rows(tmp_path / "l.jsonl", people))
    assert (found["rows"], found["counts"].get("without labels", 0)) == (200, 0)
    named = {one["raters"][1]: one["agreement"] for one in found["agreement"] if one["raters"][0] == "judge"}
    assert (named["majority"]["n"], named["majority"]["value"]) == (200, 0.75)
    assert {name: one["n"] for name, one in named.items()} == {"a": 112, "b": 112, "c": 88, "majority": 200}


def test_calibration_joins_by_the_column_that_both_files_have(tmp_path: Path) -> None:
    """The run's `id` has the values of `idx` in reverse, and `idx` is what the labels have."""
    rows = verdict_rows(40, idx="{}")
    rows = [row | {"id": str(39 - n)} for n, row in enumerate(rows)]
    run = write_rows(tmp_path / "run.jsonl", rows)
    labels = write_rows(tmp_path / "l.jsonl", [{"idx": n, "label": one} for n, one in enumerate(right(40))])
    for named in ((), ("--column", "id=idx")):
        found = calibration("score", run, *PREDICTION, *named, "--calibrate", labels)
        assert found["agreement"][0]["agreement"]["value"] == 0.75
    stored = write_rows(tmp_path / "alone.jsonl", [_stored(n, row["p"]) for n, row in enumerate(rows)])
    found = calibration("score", stored, "--calibrate", labels)
    assert found["agreement"][0]["agreement"]["value"] == 0.75


def _stored(number: int, verdict: str) -> dict[str, Any]:
    """A row in JudgeBench's columns, with an `id` that is another row's `idx`."""
    judgments = [{"judgment": {"response": text}, "decision": None} for text in ("", "")]
    names = {"A": ("[[A>B]]", "[[B>A]]"), "B": ("[[B>A]]", "[[A>B]]")}[verdict]
    for one, text in zip(judgments, names, strict=True):
        one["judgment"] = {"response": text}
    row = {"pair_id": f"p{number}", "source": "mmlu-pro-law", "label": "A>B", "judgments": judgments}
    return row | {"idx": number, "id": 39 - number}


@pytest.mark.parametrize("labelled_by", ["question", None])
def test_labels_without_the_key_of_the_run_are_not_joined_by_position(
    tmp_path: Path, labelled_by: str | None
) -> None:
    run = write_rows(tmp_path / "run.jsonl", verdict_rows(40, id="{}"))
    labels = [{"label": one} | ({labelled_by: n} if labelled_by else {}) for n, one in enumerate(right(40))]
    done = command(
        "score", run, *PREDICTION, "--calibrate", write_rows(tmp_path / "l.jsonl", labels[::-1]), code=2
    )
    assert "l.jsonl: no column to join labels by: one of idx, pair_id, id, index" in done.stderr
    places = write_rows(tmp_path / "places.jsonl", verdict_rows(40))
    ours = write_rows(tmp_path / "ours.jsonl", [_stored(n, "A") for n in range(40)])
    done = command("score", ours, "--calibrate", tmp_path / "l.jsonl", code=2)
    assert "l.jsonl: no column to join labels by: one of idx, pair_id, id, index" in done.stderr
    kept = write_rows(tmp_path / "kept.jsonl", [{"id": n, **one} for n, one in enumerate(labels)])
    done = command("score", places, *PREDICTION, "--calibrate", kept, code=2)
    assert "the results: no column to join labels by: one of idx, pair_id, id, index" in done.stderr


def test_labels_of_no_row_are_counted(tmp_path: Path) -> None:
    run = write_rows(tmp_path / "run.jsonl", verdict_rows(40, id="{}"))
    labels = [{"id": n, "label": one} for n, one in enumerate(right(50))]
    found = calibration("score", run, *PREDICTION, "--calibrate", write_rows(tmp_path / "l.jsonl", labels))
    assert (found["rows"], found["counts"]["labels of no row"]) == (40, 10)
