"""`tirjudge bon` as a user runs it, with a real endpoint and a real sandbox."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import invoke
from tests.tirjudge.judge_command import results as lines
from tirjudge_environments.orders import letters


@pytest.fixture(autouse=True)
def judging(endpoint: EndpointServer) -> None:
    """Play a judge that prefers the largest number in `candidate N`."""
    endpoint.script = prefer_the_largest


def prefer_the_largest(body: dict[str, Any]) -> dict[str, Any]:
    numbers = [int(one) for one in re.findall(r"candidate (\d+)", body["messages"][-1]["content"])]
    if len(numbers) == 1:
        return chat(f"<score>{1 + numbers[0] % 10}</score>")
    best = letters(len(numbers))[numbers.index(max(numbers))]
    return chat(f"<preference>{best}</preference>")


def bon(folder: Path, *arguments: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
    return invoke("bon", *arguments, folder=folder, code=code)


def through(endpoint: EndpointServer) -> tuple[str, ...]:
    return ("--no-tools", "--base-url", endpoint.url, "--model", "m")


def write_rows(path: Path, count: int, candidates: int = 6) -> Path:
    """Write rows that only the last candidate solves, and in every second row also the first one."""
    rows = [
        {
            "id": f"q{n}",
            "prompt": f"Question {n}",
            "responses": [f"candidate {k}" for k in range(candidates)],
            "solved": [k == candidates - 1 or (k == 0 and n % 2 == 0) for k in range(candidates)],
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def table(run: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """Return the printed table: the solved count, rate, judgments and undecided questions by method."""
    shown = [line for line in run.stdout.splitlines()[2:] if "%" in line]
    cells = [re.split(r"\s{2,}", line.replace("%]", "%]  ")) for line in shown]
    return {name: [solved, rate, *rest] for name, solved, rate, *rest in cells}


def test_the_table_compares_with_pass_1_majority_and_the_oracle(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", 8)
    run = bon(tmp_path, "rows.jsonl", *through(endpoint), code=0)
    found = {name: (cells[0], *cells[2:]) for name, cells in table(run).items()}
    assert found == {
        "pass@1": ("2", "0", "0"),
        "majority": ("4", "0", "0"),
        "pointwise": ("8", "48", "0"),
        "pairwise": ("8", "40", "0"),
        "listwise": ("8", "24", "0"),
        "oracle": ("8", "0", "0"),
    }
    picks = {pick["id"]: pick for pick in lines(tmp_path / "rows.bon.jsonl.picks.jsonl")}
    assert picks["q3"]["selections"]["listwise"] == {
        "choice": 5,
        "response": "candidate 5",
        "solved": 1.0,
        "judgments": 3,
        "undecided": 0,
    }
    judged = lines(tmp_path / "rows.bon.jsonl")
    assert len({row["id"] for row in judged}) == len(judged) == len(endpoint.asked)
    assert all(row["question"] in picks and row["views"] for row in judged)
    assert f"judged    {len(judged)} times in all runs, {len(judged)} with a verdict" in run.stdout


def test_a_quarter_of_a_question_is_printed_as_a_quarter(tmp_path: Path) -> None:
    row = {"prompt": "p", "responses": ["a", "b", "c", "d"], "solved": [True, False, False, False]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    run = bon(tmp_path, "rows.jsonl", "--no-judge")
    assert table(run)["pass@1"][0] == "0.25"


def test_the_thinking_of_a_candidate_is_not_graded(tmp_path: Path) -> None:
    code = "```python\ndef add(a, b): return a {} b\n```"
    rows: list[dict[str, Any]] = [
        {
            "prompt": "Write add.",
            "responses": [f"<think>{code.format('-')}</think>\n{code.format('+')}", code.format("-")],
            "tests": "assert add(1, 2) == 3",
        },
        {
            "prompt": "Capital?",
            "responses": ["<think>a</think>Rome", "<think>b</think>Paris", "<think>c</think>Paris"],
            "label": "B",
        },
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = bon(tmp_path, "rows.jsonl", "--no-judge", code=0)
    found = table(run)
    assert (found["oracle"][0], found["majority"][0]) == ("2", "2")
    kept = bon(tmp_path, "rows.jsonl", "--no-judge", "--judge-thinking", "--output", "whole.jsonl")
    assert table(kept)["oracle"][0] == "1"


def test_candidates_are_selected_without_any_label(tmp_path: Path, endpoint: EndpointServer) -> None:
    row = {"prompt": "p", "responses": [f"candidate {k}" for k in (1, 7, 3)]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    # A second model is asked where no program decided, as by `tirjudge judge`.
    pair = (
        "--tools",
        "--model",
        "second",
        "--escalate-below",
        "1",
        "--confidence",
        "evidence",
        "--prompts",
        "tir",
    )
    run = bon(tmp_path, "rows.jsonl", "--pairwise", "--listwise", *through(endpoint), *pair, code=0)
    assert {body["model"] for body in endpoint.bodies} >= {"second"}
    assert "0 with a label or check" in run.stdout
    (pick,) = lines(tmp_path / "rows.bon.jsonl.picks.jsonl")
    assert pick["solved"] is None
    chosen = {name: one["response"] for name, one in pick["selections"].items()}
    assert chosen == {"pairwise": "candidate 7", "listwise": "candidate 7"}


def test_picks_are_shown_with_the_names_of_their_columns(tmp_path: Path, endpoint: EndpointServer) -> None:
    rows = [
        {"id": f"q{n}", "prompt": "p", "gpt": f"candidate {n}", "claude": "candidate 2", "own": "candidate 1"}
        for n in (0, 3, 4)
    ]
    # Where a row has no verdict at all, its best candidate is drawn by lot.
    rows.append({**rows[0], "id": "mute", "prompt": "mute"})
    endpoint.script = lambda body: chat("?") if "mute" in str(body) else prefer_the_largest(body)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ("--column", "responses=gpt,claude,own")
    run = bon(tmp_path, "rows.jsonl", "--pairwise", *named, *through(endpoint), code=0)
    shown = run.stdout.partition("picks.jsonl\n")[2].splitlines()
    mute, *decided = sorted(shown[:4])
    assert decided == ["  q0: pairwise B claude", "  q3: pairwise A gpt", "  q4: pairwise A gpt"]
    assert mute.endswith(" (undecided)")
    assert shown[4:] == ["pairwise picked gpt 2, claude 1, undecided 1"]
    picks = [one for one in lines(tmp_path / "rows.bon.jsonl.picks.jsonl") if one["id"] != "mute"]
    assert sorted(pick["selections"]["pairwise"]["source"] for pick in picks) == ["claude", "gpt", "gpt"]
    # A judgment of two of the three candidates has the names of these two.
    judged = lines(tmp_path / "rows.bon.jsonl")
    assert {tuple(row["sources"]) for row in judged} <= {
        ("gpt", "claude"),
        ("claude", "gpt"),
        ("gpt", "own"),
        ("own", "gpt"),
        ("claude", "own"),
        ("own", "claude"),
    }


def test_another_method_reuses_earlier_judgments(tmp_path: Path, endpoint: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", 2)
    assert bon(tmp_path, "rows.jsonl", "--method", "round-robin", *through(endpoint)).returncode == 0
    asked = len(endpoint.asked)
    assert asked == 2 * 15
    run = bon(tmp_path, "rows.jsonl", "--method", "pairwise", *through(endpoint))
    assert (run.returncode, len(endpoint.asked)) == (0, asked)
    assert table(run)["pairwise"][0] == "2"


@pytest.mark.slow
def test_mathematics_and_code_are_checked_in_the_sandbox_and_kept(tmp_path: Path) -> None:
    rows = [
        {"prompt": "1/2 + 1/4?", "responses": ["0.75", "\\boxed{\\frac34}", "\\boxed{1}"], "answer": "3/4"},
        {
            "prompt": "Double.",
            "responses": ["```python\nf = lambda x: 2 * x\n```", "f = abs"],
            "test": "assert f(3) == 6",
        },
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = bon(tmp_path, "rows.jsonl", "--no-judge", code=0)
    assert [table(run)[name][0] for name in ("pass@1", "majority", "oracle")] == ["1.17", "2", "2"]
    grades = tmp_path / "rows.bon.jsonl.grades.jsonl"
    before = grades.read_bytes()
    assert bon(tmp_path, "rows.jsonl", "--no-judge").stdout.splitlines()[:5] == run.stdout.splitlines()[:5]
    assert grades.read_bytes() == before
    assert not (tmp_path / "rows.bon.jsonl").exists()


@pytest.mark.slow
def test_an_unreachable_judge_fails_rows_and_the_same_command_resumes(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", 4)
    endpoint.script = lambda body: failure(401, "bad key")
    run = bon(tmp_path, "rows.jsonl", *through(endpoint))
    assert (run.returncode, "the endpoint refuses every request: " in run.stderr) == (1, True)
    (tmp_path / "rows.bon.jsonl.failed.jsonl").unlink()
    endpoint.script = lambda body: failure(400, "bad request")
    run = bon(tmp_path, "rows.jsonl", "--give-up-after", "2", *through(endpoint), code=1)
    assert "gave up after 2 consecutive failures, the last one because: " in run.stderr
    assert lines(tmp_path / "rows.bon.jsonl.failed.jsonl")[0]["id"].startswith("q")
    # A row that cannot be read says nothing about the judge.
    read = (tmp_path / "rows.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "torn.jsonl").write_text(f"{read[0]}torn\n{read[1]}torn\n{read[2]}{read[3]}")
    run = bon(tmp_path, "torn.jsonl", "--give-up-after", "2", "--concurrency", "1", *through(endpoint))
    assert "rows      0 of 0.0 candidates each, 3 failed" in run.stdout
    assert "gave up after 2 consecutive failures" in run.stderr
    endpoint.script = prefer_the_largest
    run = bon(tmp_path, "rows.jsonl", *through(endpoint), code=0)
    assert table(run)["pairwise"][0] == "4"
    assert not (tmp_path / "rows.bon.jsonl.failed.jsonl").exists()


def test_judgments_of_graded_candidates_have_a_reward_and_say_who_is_right(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    row = {"prompt": "Q", "responses": [f"candidate {k}" for k in range(3)], "label": "3"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    command = ("rows.jsonl", "--method", "round-robin", *through(endpoint))
    assert "give --labels 1=A,2=B,3=C" in bon(tmp_path, *command).stderr
    run = bon(tmp_path, *command, "--labels", "1=A,2=B,3=C", "--json", code=0)
    record = json.loads(run.stdout)
    assert (record["rows"], record["graded"], record["failed"]) == (1, 1, 0)
    assert record["select_by"]["round-robin"]["solved"] == 1
    judged = {tuple(one["candidates"]): one for one in lines(tmp_path / "rows.bon.jsonl")}
    assert {pair: (one["label"], one["correct"]) for pair, one in judged.items()} == {
        (0, 1): (None, None),
        (0, 2): (1, 1.0),
        (1, 2): (1, 1.0),
    }
    assert judged[0, 2]["views"][0]["reward"]["total"] == 1
    assert "reward" not in judged[0, 1]["views"][0]
