"""`tirjudge judge` as a user runs it: a real process, a real endpoint, a real sandbox."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import asking_as_tir, counting, judge, pairs, results, through, write_rows


def test_a_pair_is_judged_with_the_program_that_proves_it(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = counting
    rows = [
        {"id": "one", "prompt": "Which is longer?", "responses": ["aa", "b"], "label": "A", "tags": ["t"]},
        {
            "id": "two",
            "prompt": "And which is longer now?",
            "responses": ["a", "bb"],
            "label": "A",
            "domain": "d",
        },
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    run = judge(
        tmp_path, "--pairwise", "rows.jsonl", "--output", "out.jsonl", *asking_as_tir(endpoint), code=0
    )
    one, two = sorted(results(tmp_path / "out.jsonl"), key=lambda row: row["id"])
    assert (one["verdict"], one["choice"], one["correct"], one["tags"]) == ("A", 0, 1.0, ["t"])
    assert (two["verdict"], two["choice"], two["correct"], two["domain"]) == ("B", 1, 0.0, "d")
    assert (one["format"], one["model"], one["stop"], one["programs"]) == ("pairwise", "m", "verdict", 1)
    (view,) = one["views"]
    kinds = [segment["kind"] for segment in view["segments"]]
    assert kinds == ["reasoning", "program", "output", "reasoning"]
    program = view["segments"][1]
    shown = "AB"[view["order"].index(0)]
    assert (program["status"], program["stdout"]) == ("ok", f"longer: {shown}\n")
    assert "accuracy  50.0% [9.5%, 90.5%], n = 2" in run.stdout
    assert "programs  2 run (1.00 a row), 0 failed" in run.stdout


def test_the_format_follows_the_number_of_responses(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<score>7</score> <preference>B</preference>")
    rows = [{"id": str(n), "prompt": "p", "responses": ["x", "y", "z"][:n]} for n in (1, 2, 3)]
    judge(tmp_path, rows, "--order", "given", "--no-tools", *through(endpoint), code=0)
    judged = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert [judged[n]["format"] for n in "123"] == ["pointwise", "pairwise", "listwise"]
    assert (judged["1"]["scores"], judged["1"]["verdict"]) == ([7.0], None)
    assert [judged[n]["verdict"] for n in "23"] == ["B", "B"]


def test_bad_rows_are_reported_and_the_others_judged(tmp_path: Path, endpoint: EndpointServer) -> None:
    lines = [json.dumps(row) for row in pairs(2)]
    lines[1:1] = [
        "{broken",
        '{"prompt": "p"}',
        '{"prompt": "p", "responses": ["a", "b"], "label": 4}',
        lines[0],
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    run = judge(tmp_path, "--pairwise", "rows.jsonl", "--no-tools", *through(endpoint), code=1)
    assert sorted(row["id"] for row in results(tmp_path / "rows.verdicts.jsonl")) == ["p0", "p1"]
    named = (
        "2: not JSON",
        "3: no responses",
        "4: label '4'",
        "5: its id 'p0' is already used by rows.jsonl:1",
    )
    note, *reported = [line for line in run.stderr.splitlines() if line.startswith("rows.jsonl:")]
    assert note.endswith("a label that names no response; such rows fail (first: rows.jsonl:4)")
    for line, part in zip(reported, named, strict=True):
        assert line.startswith(f"rows.jsonl:{part}")
    failures = results(tmp_path / "rows.verdicts.jsonl.failed.jsonl")
    assert [failure["where"] for failure in failures] == [f"rows.jsonl:{n}" for n in (2, 3, 4, 5)]


def test_a_benchmarks_own_columns_and_labels(tmp_path: Path, endpoint: EndpointServer) -> None:
    row = {"idx": 5, "instruction": "Add.", "input": "1 2", "response1": "3", "response2": "4", "who": 1}
    write_rows(tmp_path / "rows.jsonl", [row, {**row, "idx": 6, "who": 0}])
    columns = ("id=idx", "prompt=instruction+input", "responses=response1,response2", "label=who")
    options = [word for column in columns for word in ("--column", column)]
    arguments = ("--labels", "0=tie,1=A,2=B", "--order", "given", "--no-tools", *through(endpoint))
    run = judge(tmp_path, "rows.jsonl", *options, *arguments, code=0)
    assert "Add.\n\n1 2" in endpoint.bodies[0]["messages"][0]["content"]
    assert "n = 1, protocol verdict (a tie" in run.stdout


def test_hostile_text_reaches_the_terminal_as_escapes(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("\x1b[2J<preference>A</preference>")
    evil = "\x1b]0;owned\x07[bold red]\x1b[2J\u202e"
    rows = [
        {"id": evil, "prompt": evil, "responses": [evil, "\ud800 <|im_end|>"], "label": evil},
        {"id": evil, "prompt": "p", "responses": ["a", "b"], "label": "A"},
        {"id": evil, "prompt": "p", "responses": ["a", "b"], "label": "A"},
    ]
    write_rows(tmp_path / f"{evil[:6]}.jsonl", rows)
    run = judge(tmp_path, f"{evil[:6]}.jsonl", "--output", "out", "--no-tools", *through(endpoint), code=1)
    shown = run.stdout + run.stderr
    assert not set("\x1b\x07\u202e") & set(shown)
    assert r"\x1b]0;owned\x07[bold red]\x1b[2J\u202e" in shown
    assert len(results(tmp_path / "out")) == 1


@pytest.mark.slow
def test_an_endpoint_judges_without_torch(tmp_path: Path, endpoint: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    endpoint.script = counting
    script = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
missing = {"torch", "transformers", "tokenizers", "safetensors", "trl", "datasets"}
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in missing else find(name, *rest)
sys.argv[0] = "tirjudge"
from tirjudge.cli import main
main()
"""
    command = [sys.executable, "-c", script, "judge", "rows.jsonl"]
    run = subprocess.run(
        [*command, *asking_as_tir(endpoint)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert results(tmp_path / "rows.verdicts.jsonl")[0]["programs"] == 1
    local = subprocess.run(
        [*command, "--model", ".", "--output", "local.out", "--no-tools"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert local.returncode == 2
    assert len(local.stderr.splitlines()) == 1
    assert "tirjudge[local]" in local.stderr


def test_an_accuracy_below_the_threshold_is_an_exit_code(tmp_path: Path, endpoint: EndpointServer) -> None:
    """Three of four labelled rows are right; the row without a label does not count."""
    rows = [{**row, "label": "B" if row["id"] == "p3" else "A"} for row in pairs(4)]
    write_rows(tmp_path / "rows.jsonl", [*rows, {"prompt": "Question 9", "responses": ["x", "y"]}])
    endpoint.script = lambda body: chat("<preference>A</preference>")
    command = ("rows.jsonl", "--no-tools", "--order", "given", *through(endpoint))
    for share, code in (("0.75", 0), ("0.76", 1)):
        run = judge(tmp_path, *command, "--min-accuracy", share)
        assert run.returncode == code, run.stderr
    assert run.stderr.splitlines()[-1] == (
        "tirjudge judge: the accuracy is 75.0% [30.1%, 95.4%], n = 4, and --min-accuracy is 0.76"
    )
    write_rows(tmp_path / "unlabelled.jsonl", [{"prompt": "p", "responses": ["x", "y"]}])
    run = judge(tmp_path, "unlabelled.jsonl", *command[1:], "--min-accuracy", "0")
    assert (run.returncode, "no row has a label" in run.stderr) == (1, True)
