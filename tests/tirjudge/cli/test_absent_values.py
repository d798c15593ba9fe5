"""Absent values and ties in the words of other files, and messages about a missing part of a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows

TIES = ["tie (bothbad)", "Both bad", "tie (both good)", "draw", "Tie"]


def scored(folder: Path, rows: list[dict[str, Any]], *words: str) -> dict[str, Any]:
    write_rows(folder / "rows.jsonl", rows)
    done = invoke("score", "rows.jsonl", *words, "--json", folder=folder, code=0)
    return json.loads(done.stdout)[0]["figures"]


def test_ties_and_absent_labels_are_read_as_the_judge_command_reads_them(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    absent = [float("nan"), None, "", "N/A", "NaN"]
    rows = [{"id": n, "prediction": "A", "label": one} for n, one in enumerate(["A", "B", *TIES, *absent])]
    figures = scored(tmp_path, rows, "--column", "prediction=prediction", "--protocol", "three-class")
    assert (figures["agreement"]["value"], figures["agreement"]["n"]) == (pytest.approx(1 / 7), 7)
    endpoint.script = lambda body: chat("<preference>A</preference>")
    write_rows(tmp_path / "rows.jsonl", [{**row, "prompt": "p", "responses": ["x", "y"]} for row in rows])
    judge(tmp_path, "rows.jsonl", *through(endpoint), "--no-tools", "--order", "given", "-o", "out.jsonl")
    found = {row["id"]: (row["label"], row["strength"]) for row in results(tmp_path / "out.jsonl")}
    assert [found[str(n)] for n in range(len(rows))] == [
        *[(0, None), (1, None)], *[(None, 0)] * len(TIES), *[(None, None)] * len(absent)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "people", "counted"),
    [
        ([1, 2, 3, 4, 5, 3], [1, 2, -1, "N/A", 5, float("nan")], 3),
        ([10, 20, -1, 40, 50, 30], [1, 2, 3, 4, 5, None], 4),
        # Here -1 is the lowest of the scale.
        ([-1, 0, 1, 1, 0, -1], [-1, 0, 1, 1, 0, -1], 6),
        ([-2, -1, 3, 1, 0, 2], [-2, -1, 3, 1, 0, 2], 6),
    ],
)
def test_sentinels_are_no_ratings(tmp_path: Path, judged: list[Any], people: list[Any], counted: int) -> None:
    rows = [
        {"id": n, "own": one, "people": other}
        for n, (one, other) in enumerate(zip(judged, people, strict=True))
    ]
    figures = scored(tmp_path, rows, "--column", "rating=own", "--column", "label=people")
    assert (figures["Spearman"]["value"], figures["Spearman"]["n"]) == (pytest.approx(1), counted)


def test_an_absent_length_controlled_result_has_its_reason(tmp_path: Path) -> None:
    rows = [{"id": n, "prediction": "AB"[n % 2], "a": "m", "b": "n"} for n in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    words = ("--column", "prediction=prediction", "--column", "sources=a,b")
    done = invoke("score", "rows.jsonl", *words, folder=tmp_path, code=0)
    assert "win rate of m 50.00 %" in done.stdout
    assert "length-controlled: no row can be scored: left out: no two sources, or no lengths" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "word " * 9000}, "the prompt has 45000 characters"),
        ({"prompt": "p", "responses": ["word " * 40_000, "b"]}, None),
    ],
)
def test_too_long_a_row_names_what_is_long_and_advice_that_works(
    tmp_path: Path, row: dict[str, Any], said: str | None
) -> None:
    done = judge(tmp_path, [{"responses": ["a", "b"], **row}], "-o", "out.jsonl")
    if said is None:
        assert done.returncode == 0, (
            "the embedded judge shows the middle of a long response to programs alone"
        )
        return
    assert done.returncode == 1
    assert said in done.stderr
    assert "max_context" not in done.stderr
    assert ("--truncate" in done.stderr) == ("--truncate" in said)


def test_a_report_has_the_title_that_was_given(tmp_path: Path) -> None:
    run = str(Path("examples/instructions.verdicts.jsonl").resolve())
    invoke("report", run, "--title", "Two <models>", "-o", "page.html", folder=tmp_path, code=0)
    page = (tmp_path / "page.html").read_text()
    assert "<h1>Two &lt;models&gt;</h1>" in page
    assert "<title>Two &lt;models&gt; – tirjudge report</title>" in page
