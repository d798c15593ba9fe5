"""One definition of accuracy: every command prints the same number of a file, and names the same protocol."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, through, write_rows

KINDS = ("right",) * 15 + ("wavers",) * 9 + ("first",) * 12 + ("wrong",) * 9
"""The judge is right, is right in two of three answers, names the place shown first, or is wrong."""
RUNS = [
    # A row whose orders disagree is a tie of two responses and worth a half. The majority of three samples
    # is right where the judge wavers; without samples it is wrong about every third such row.
    pytest.param(((), (5 + 2 + 4 / 2) / 15), id="both orders"),
    pytest.param((("--samples", "3"), (5 + 3 + 4 / 2) / 15), id="samples"),
]
GAIN = 3 / 15
"""Another judge is right where the first one is wrong."""


def judging(wrong: str) -> Any:
    """Play a judge with these habits; its verdict on rows of the kind `wrong` is `wrong` or `right`."""
    calls: Counter[tuple[str, bool]] = Counter()

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        (kind,) = re.findall(r"Question (\w+)", body["messages"][-1]["content"])[-1:]
        place = body["messages"][-1]["content"].index("good") < body["messages"][-1]["content"].index("poor")
        right, other = ("A", "B") if place else ("B", "A")
        calls[kind, place] += 1
        # Three rows of this kind have three samples each, so that every third answer is wrong.
        wavering = other if calls[kind, place] % 3 == 0 else right
        verdict = {"right": right, "wavers": wavering, "first": "A", "wrong": right if wrong else other}
        return chat(f"So <preference>{verdict[kind]}</preference>")

    return answer


@pytest.fixture
def runs(tmp_path: Path, endpoint: EndpointServer, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Judge the same labelled rows twice, in both orders, and return the summaries."""
    rows = [
        # Two rows each share a prompt, so that the rows are clusters.
        {"id": f"r{n}", "prompt": f"{n // 2}. Question {kind}", "responses": ["good", "poor"], "label": 0}
        for n, kind in enumerate(KINDS)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    (options, _), summaries = request.param, []
    for name, wrong in ("before.jsonl", ""), ("after.jsonl", "right"):
        endpoint.script = judging(wrong)
        words = ("--pairwise", "rows.jsonl", *through(endpoint), "--no-tools", "--order", "both")
        done = judge(tmp_path, *words, *options, "--output", name, "--json", "--concurrency", "1", code=0)
        summaries.append(json.loads(done.stdout))
    return summaries


@pytest.mark.parametrize("runs", every(2, RUNS), indirect=True)
def test_five_commands_find_the_same_accuracy(
    runs: list[dict[str, Any]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _, before = request.node.callspec.params["runs"]
    first, second = f"{100 * before:.2f}", f"{100 * (before + GAIN):.2f}"
    for summary, expected in zip(runs, (before, before + GAIN), strict=True):
        assert summary["protocol"] == "verdict"
        assert summary["accuracy"] == pytest.approx(expected)

    (scored, *_) = json.loads(invoke("score", "before.jsonl", "--json", folder=tmp_path).stdout)
    found = scored["figures"]["accuracy"]
    assert (scored["protocol"], found["value"]) == ("verdict", pytest.approx(before))
    assert scored["clusters"] == 24
    assert [found["low"], found["high"]] == pytest.approx(runs[0]["interval"]), "clustered in both"
    line = invoke("score", "before.jsonl", folder=tmp_path).stdout.splitlines()[0]
    interval = f"[{100 * found['low']:.2f}, {100 * found['high']:.2f}]"
    assert line == f"accuracy {first} % {interval}, protocol verdict, n = 45 in 24 clusters (before.jsonl)"

    compared = invoke("compare", "before.jsonl", "after.jsonl", folder=tmp_path).stdout.splitlines()[0]
    assert compared.startswith("accuracy +20.00 points")
    assert f"from {first} (before.jsonl) to {second} (after.jsonl), protocol verdict, n = 45" in compared

    assert invoke("show", "before.jsonl", folder=tmp_path).stdout.splitlines()[-1] == line

    invoke("report", "before.jsonl", "after.jsonl", "-o", "page.html", folder=tmp_path)
    page = re.sub(r"\s+", " ", (tmp_path / "page.html").read_text())
    values = re.findall(r'<p class="value">([^<]*)<', page)
    assert values == ["+20.0", f"{100 * before:.1f}", f"{100 * (before + GAIN):.1f}"], (
        "the difference and the cards"
    )
    assert page.count("<strong>accuracy, protocol verdict</strong>") == 2
    assert "Protocol verdict." in page


def test_an_interval_and_a_test_that_disagree_are_named(tmp_path: Path) -> None:
    """Of ten pairs six are gained and one is lost: 2 (1 + 7/2) / 2**7 = 0.0703 is the mid-p value.

    The interval by Agresti and Min adds half a pair to each kind: (6.5 - 1.5) / 12 -+ 1.96 sqrt(...) > 0.
    """
    for name, verdicts in ("before", "A" + "B" * 6 + "AAA"), ("after", "B" + "A" * 9):
        rows = [{"id": n, "prediction": one, "label": "A"} for n, one in enumerate(verdicts)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    words = ("compare", "before.jsonl", "after.jsonl", "--column", "prediction=prediction")
    (line, *_) = invoke(*words, "--protocol", "one-order", folder=tmp_path).stdout.splitlines()
    assert "accuracy +50.00 points [+1.94, " in line
    assert "p = 0.0703 (McNemar, mid-p)" in line
    assert line.endswith(
        "; the interval and the test disagree about a difference of zero: take neither as settled"
    )
    (record,) = json.loads(invoke(*words, "--protocol", "one-order", "--json", folder=tmp_path).stdout)
    assert record["disagreement"].startswith("the interval and the test disagree")
    same = ("compare", "before.jsonl", "before.jsonl", *words[3:], "--protocol", "one-order")
    assert "disagree" not in invoke(*same, folder=tmp_path).stdout


def test_ties_of_some_responses_and_verdicts_left_open_count_alike(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Of three responses two share the first place: worth 1/2 or 0, not the 1/3 of a tie of all.

    Orders that name the same response have a vote share of 1, the others of 1/2.
    """
    endpoint.script = lambda body: chat(
        "So <preference>A</preference>"
        if "Question first" in body["messages"][-1]["content"]
        else "So <preference>B</preference>"
    )
    rows = [
        {"id": f"{kind}{label}", "prompt": f"Question {kind} {label}", "responses": ["x", "y", "z"]}
        | {"label": label}
        for kind in ("first", "middle")
        for label in (0, 1, 2)
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("--listwise", "rows.jsonl", *through(endpoint), "--no-tools", "--order", "both", "--json")
    # The first place names A and C in turn, the middle one is always B.
    ties, decided = (1 / 2 + 0 + 1 / 2, 3), (0 + 1 + 0, 3)
    for options, (right, n) in ((), (ties[0] + decided[0], 6)), (("--abstain-below", "0.8"), decided):
        name = f"out{n}.jsonl"
        summary = json.loads(judge(tmp_path, *words, *options, "--output", name).stdout)
        (scored, *_) = json.loads(invoke("score", name, "--json", folder=tmp_path).stdout)
        found = scored["figures"]["accuracy"]
        assert (found["value"], found["n"]) == (pytest.approx(right / n), n)
        assert (summary["accuracy"], summary["labelled"]) == (pytest.approx(right / n), n)
        assert summary["interval"] == pytest.approx([found["low"], found["high"]])
