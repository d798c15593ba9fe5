"""Gates and reports of CI: a significant loss fails `compare`, and JUnit XML has a test case for each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, through, write_rows

COLUMNS = ("--column", "prediction=prediction", "--protocol", "one-order")
HOSTILE = "q\x00\x1b[31m<&\"']]>\ud83d\u202e\ufffe\n</testsuite>"


def judged_pairs(endpoint: EndpointServer) -> tuple[str, ...]:
    """Return the words of a command that judges pairs and writes the rows as test cases."""
    shown = ("--no-tools", "--order", "given", "--junit", "ci.xml")
    return ("--pairwise", "rows.jsonl", *through(endpoint), *shown)


def written(folder: Path, name: str, verdicts: str, label: str = "A") -> None:
    rows = [{"id": n, "prediction": one, "label": label} for n, one in enumerate(verdicts)]
    write_rows(folder / name, rows)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("A" * 20, "A" * 10 + "B" * 10, 1),
        ("A" * 10 + "B" * 10, "A" * 20, 0),
        ("A" * 20, "A" * 18 + "B" * 2, 0),
        # The interval excludes zero, but the test does not: neither is settled.
        ("B" + "A" * 9, "A" + "B" * 6 + "AAA", 0),
    ],
)
def test_only_a_significant_loss_fails_the_comparison(
    tmp_path: Path, before: str, after: str, code: int
) -> None:
    written(tmp_path, "before.jsonl", before)
    written(tmp_path, "after.jsonl", after)
    words = ("compare", "before.jsonl", "after.jsonl", *COLUMNS)
    assert invoke(*words, folder=tmp_path).returncode == 0
    gated = invoke(*words, "--fail-if-worse", folder=tmp_path)
    assert gated.returncode == code, gated.stderr
    assert gated.stdout == invoke(*words, folder=tmp_path).stdout
    assert ("tirjudge compare: after.jsonl is worse: accuracy -" in gated.stderr) == bool(code)


def test_one_worse_run_of_several_fails_by_holms_correction(tmp_path: Path) -> None:
    for name, wrong in ("first", 0), ("equal", 0), ("slightly", 6), ("worse", 12):
        written(tmp_path, f"{name}.jsonl", "A" * (20 - wrong) + "B" * wrong)
    words = ("compare", "first.jsonl", "equal.jsonl", "slightly.jsonl", "worse.jsonl", *COLUMNS)
    gated = invoke(*words, "--fail-if-worse", folder=tmp_path, code=1)
    # The mid-p values are 2 * 0.5 / 2**6 = 0.016 and 0.0002, times 2 and 3 by Holm.
    assert [line.split()[2] for line in gated.stderr.splitlines()] == ["slightly.jsonl", "worse.jsonl"]


def test_a_gate_that_compares_nothing_fails_as_wrong_usage(tmp_path: Path) -> None:
    rows = Path("examples/instructions.verdicts.jsonl").read_text().splitlines()
    unlabelled = [{**json.loads(row), "label": None} for row in rows]
    for name in ("one.jsonl", "two.jsonl"):
        write_rows(tmp_path / name, unlabelled)
    gated = invoke("compare", "one.jsonl", "two.jsonl", "--fail-if-worse", folder=tmp_path, code=2)
    assert "--fail-if-worse compares accuracies, agreements and scores" in gated.stderr


def suite(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the class, the outcome and its message of each test case, as junitparser reads them."""
    (found,) = JUnitXml.fromfile(str(path))
    cases = list(found)
    assert found.tests == len(cases)
    counts = [
        sum(isinstance(one, kind) for case in cases for one in case.result)
        for kind in (Failure, Error, Skipped)
    ]
    assert [found.failures, found.errors, found.skipped] == counts
    return {
        case.name: (
            case.classname,
            type(case.result[0]) if case.result else None,
            case.result[0].message if case.result else case.system_out,
        )
        for case in cases
    }


def test_judged_rows_are_test_cases(tmp_path: Path, endpoint: EndpointServer) -> None:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][-1]["content"]
        if "DOWN" in text:
            return {"error": {"message": "context length exceeded"}}
        return chat("I cannot say." if "MUMBLE" in text else "<preference>A</preference>")

    endpoint.script = script
    rows = [
        {"id": "right", "prompt": "p", "label": 0, "domain": "math"},
        {"id": "wrong", "prompt": "p", "label": 1, "domain": "math"},
        {"id": "equal", "prompt": "p", "label": "tie"},
        {"id": "silent", "prompt": "MUMBLE", "label": 0},
        {"id": "free", "prompt": "p"},
        {"id": HOSTILE, "prompt": "p", "label": 1, "domain": HOSTILE},
    ]
    write_rows(
        tmp_path / "rows.jsonl",
        [{**row, "responses": ["x", "y"]} for row in rows] + [{"id": "bad", "prompt": "p"}],
    )
    words = judged_pairs(endpoint)
    done = judge(tmp_path, *words, "--output", "out.jsonl")
    found = suite(tmp_path / "ci.xml")
    (hostile,) = (name for name in found if name.startswith("q"))
    assert found.pop(hostile)[1:] == (Failure, "verdict A, not B")
    assert found.pop("rows.jsonl:7")[1] is Error
    assert found == {
        "right": ("math", None, "verdict A"),
        "wrong": ("math", Failure, "verdict A, not B"),
        "equal": ("out.jsonl", Failure, "verdict A, not tie"),
        "silent": ("out.jsonl", Error, "no verdict: malformed"),
        "free": ("out.jsonl", None, "verdict A"),
    }
    assert done.returncode == 1, "a row failed"
    invoke("score", "out.jsonl", "--junit", "scored.xml", folder=tmp_path, code=0)
    assert suite(tmp_path / "scored.xml") == suite(tmp_path / "ci.xml")
    kept = (tmp_path / "out.jsonl").read_text()
    refused = invoke("score", "out.jsonl", "--junit", "out.jsonl", folder=tmp_path, code=2)
    assert "out.jsonl is no JUnit file: choose another --junit" in refused.stderr
    assert (tmp_path / "out.jsonl").read_text() == kept
    refused = judge(tmp_path, *words, "--output", "-")
    assert (refused.returncode, "leave out --output -" in refused.stderr) == (2, True)


def test_single_responses_and_files_of_others_are_test_cases_too(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: chat(f"<score>{9 if 'good' in str(body) else 2}</score>")
    rows = [
        {"id": "good", "prompt": "p", "response": "good"},
        {"id": "poor", "prompt": "p", "response": "poor"},
        {"id": "known", "prompt": "p", "response": "poor", "label": "fail"},
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    judge(
        tmp_path, "rows.jsonl", *through(endpoint), "--no-tools", "--output", "out.jsonl", "--junit", "ci.xml"
    )
    assert {name: one[1:] for name, one in suite(tmp_path / "ci.xml").items()} == {
        "good": (None, "verdict pass"),
        "poor": (Failure, "verdict fail, not pass"),
        "known": (None, "verdict fail"),
    }
    written(tmp_path, "others.jsonl", "ABA")
    assert invoke("score", "others.jsonl", *COLUMNS, "--junit", "ci.xml", folder=tmp_path).returncode == 0
    assert [one[1] for one in suite(tmp_path / "ci.xml").values()] == [None, Failure, None]


def test_a_test_case_says_that_no_program_decided_it(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    rows = [{"id": id, "prompt": "p", "responses": ["x", "y"], "label": id} for id in ("A", "B", "tie")]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("rows.jsonl", "--order", "given", "--junit", "ci.xml", *through(endpoint))
    judge(tmp_path, *words)
    assert {id: case[2] for id, case in suite(tmp_path / "ci.xml").items()} == {
        "A": "verdict A, undecided",
        "B": "verdict A, undecided, not B",
        "tie": "verdict A, undecided, not tie",
    }
    judge(tmp_path, *words, "--undecided", "tie", "--overwrite")
    found = suite(tmp_path / "ci.xml")["tie"]
    assert found[1:] == (None, "verdict tie, undecided")


def test_win_rates_are_shown_by_domain(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat(
        f"<preference>{'B' if 'odd' in str(body['messages'][-1]) else 'A'}</preference>"
    )
    rows = [
        {"id": f"r{n}", "prompt": f"{n}. {kind}", "new": "x", "old": "y", "domain": domain}
        for n, (kind, domain) in enumerate(
            [("p", "math"), ("p", "math"), ("odd", "law"), ("p", "law"), ("odd", "")]
        )
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = (*judged_pairs(endpoint), "--output", "out.jsonl", "--column", "responses=new,old")
    lines = judge(tmp_path, *words).stdout.splitlines()
    assert "domains   no domain: new 0.0% [0.0%, 79.3%], old 100.0% [20.7%, 100.0%]" in lines
    assert "          law: new 50.0% [9.5%, 90.5%], old 50.0% [9.5%, 90.5%]" in lines
    assert "          math: new 100.0% [34.2%, 100.0%], old 0.0% [0.0%, 65.8%]" in lines
    assert suite(tmp_path / "ci.xml")["r0"] == ("math", None, "verdict A (new)")
    record = json.loads(judge(tmp_path, *words, "--json").stdout)["who_won"]["domains"]
    assert {
        domain: {name: one["value"] for name, one in rates.items()} for domain, rates in record.items()
    } == {
        "no domain": {"new": 0.0, "old": 1.0},
        "law": {"new": 0.5, "old": 0.5},
        "math": {"new": 1.0, "old": 0.0},
    }
    assert lines[lines.index(next(line for line in lines if line.startswith("domains"))) :][:3] == [
        line
        for line in invoke("score", "out.jsonl", folder=tmp_path).stdout.splitlines()
        if "no domain:" in line or "law:" in line or "math:" in line
    ]
