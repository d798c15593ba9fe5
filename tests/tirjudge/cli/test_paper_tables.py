"""`--as markdown|latex|csv` of `score`, `compare`, `eval` and `bon`: tables that are safe to paste."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval_inputs import lines, records
from tests.tirjudge.cli.test_eval_run import pairs
from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.judge_command import command

O1_MINI = "judgebench/judge-arena-hard-o1-mini.jsonl"
HOSTILE = (
    "=1+1|cmd",
    "@x",
    "-1,2",
    "  +3",
    "\uff1d4",
    "a & b_c $5 #6 % ~7 {8} ^9 \\input{x} `y` <z>",
    "[k]",
    "*",
)
COLUMNS = ("--column", "prediction=p", "--column", "label=l", "--column", "domain=d", "--protocol", "tir")


def printed(*arguments: object) -> str:
    done = command(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_csv(*arguments: object) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(printed(*arguments, "--as", "csv"))))


def from_markdown(text: str) -> list[list[str]]:
    """Return the cells of a table as GitHub's Markdown shows them."""
    rows: list[list[str]] = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append("".join(child.content for child in token.children or ()))
            assert all(child.type in ("text", "text_special") for child in token.children or ())
    return rows


def hostile_run(path: Path) -> Path:
    rows = [{"p": "A", "l": "AB"[n % 2], "d": HOSTILE[n % len(HOSTILE)]} for n in range(4 * len(HOSTILE))]
    return lines(path / "=run & co.jsonl", rows)


def test_a_score_stands_with_its_interval_n_protocol_and_the_papers_figures() -> None:
    words = ("score", benchmark_file(O1_MINI), "--protocol", "net-vote")
    first, *published = as_csv(*words)
    (record,) = records(*words)
    found = record["figures"]["accuracy"]
    assert first["run"] == "judge-arena-hard-o1-mini.jsonl"
    assert (first["protocol"], first["figure"], first["n"], first["unit"]) == (
        "net-vote",
        "accuracy",
        "350",
        "%",
    )
    shown = [float(first[name]) / 100 for name in ("value", "low", "high")]
    assert shown == pytest.approx([found[name] for name in ("value", "low", "high")], abs=5e-5)
    # TIR-Judge, Table 1.
    (own,) = [row for row in published if row["run"] == "GPT-o1-mini"]
    assert (own["value"], own["source"], own["n"], own["low"]) == ("65.70", "TIR-Judge, Table 1", "", "")
    assert f"{first['low']} to {first['high']}" in printed(*words, "--as", "markdown")
    value, low, high = (f"{100 * found[name]:.1f}" for name in ("value", "low", "high"))
    assert f"& 350 & {value} {{[}}{low}, {high}{{]}} &" in printed(*words, "--as", "latex")
    every = as_csv(*words, "--full")
    assert {row["figure"] for row in every} == set(record["figures"])


def test_what_stands_behind_a_number_is_a_note(tmp_path: Path) -> None:
    rows = [{"p": "AB"[n % 2] if n else "", "l": "AB"[n % 3 == 0]} for n in range(30)]
    words = ("--column", "prediction=p", "--column", "label=l", "--protocol", "three-class", "--full")
    notes = {row["figure"]: row["note"] for row in as_csv("score", lines(tmp_path / "r.jsonl", rows), *words)}
    assert notes["agreement"] == "1 missing verdicts counted as ties"
    assert notes["F1"].endswith("counted as ties; no interval: a class has fewer than 20 rows")


def test_no_cell_of_a_csv_is_a_formula(tmp_path: Path) -> None:
    run = hostile_run(tmp_path)
    found = as_csv("score", run, *COLUMNS, "--full")
    figures = [row["figure"] for row in found]
    assert {name.lstrip("'") for name in figures} >= {name for name in HOSTILE if name != "-1,2"}
    cells = [cell for row in found for cell in row.values()]
    numbers = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")
    assert not [one for one in cells if one.strip()[:1] in tuple("=+-@\uff1d") and not numbers.fullmatch(one)]
    assert all(row["run"] == "'=run & co.jsonl" for row in found)


def test_markdown_shows_the_texts_as_they_are(tmp_path: Path) -> None:
    rows = from_markdown(printed("score", hostile_run(tmp_path), *COLUMNS, "--full", "--as", "markdown"))
    assert len({len(row) for row in rows}) == 1
    figure = rows[0].index("figure")
    assert {" ".join(name.split()) for name in HOSTILE} <= {row[figure] for row in rows}
    assert {row[0] for row in rows[1:]} == {"=run & co.jsonl"}


def test_latex_has_no_command_of_the_texts(tmp_path: Path) -> None:
    text = printed("score", hostile_run(tmp_path), *COLUMNS, "--full", "--as", "latex")
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    body = [line for line in text.splitlines()[1:-1] if line != "\\hline"]
    assert all(line.endswith(r" \\") and line.count(" & ") == len(columns) - 1 for line in body)
    assert r"a \& b\_c \$5 \#6 \% \textasciitilde{}7 \{8\} \textasciicircum{}9" in text
    assert (
        r"\textbackslash{}input\{x\} \textasciigrave{}y\textasciigrave{} \textless{}z\textgreater{}" in text
    )
    commands = set(re.findall(r"\\[a-zA-Z]+", text))
    assert commands <= {rf"\{name}" for name in ("begin", "end", "hline")} | {
        rf"\text{name}"
        for name in ("backslash", "asciicircum", "asciitilde", "less", "greater", "bar", "asciigrave")
    }
    # LaTeX would take a cell that begins with [ or * for an argument of the line's end before it.
    assert not re.search(r"\\\\\s*[\[*]", text)


def test_a_comparison_has_both_runs_and_the_test() -> None:
    runs = ("examples/miniature.verdicts.jsonl", "examples/instructions.verdicts.jsonl")
    words = ("compare", *runs, "--protocol", "verdict")
    (row,) = as_csv(*words)
    (record,) = records(*words)
    found = record["differences"]["accuracy"]
    assert (row["first run"], row["second run"]) == tuple(Path(one).name for one in runs)
    shown = [float(row[name]) / 100 for name in ("difference", "low", "high")]
    assert shown == pytest.approx([found[name] for name in ("value", "low", "high")], abs=5e-5)
    assert float(row["p"]) == pytest.approx(record["p_value"], rel=1e-3)
    assert (int(row["n"]), row["test"]) == (found["n"], record["test"])
    assert "+31.25" in printed(*words, "--as", "markdown")
    assert "$+31.25$" in printed(*words, "--full", "--as", "latex")


def test_a_selection_is_a_table_alone(tmp_path: Path) -> None:
    output = ("--output", tmp_path / "picks.jsonl")
    found = as_csv("bon", "examples/candidates.jsonl", "--no-judge", *output)
    record: dict[str, Any] = json.loads(
        printed("bon", "examples/candidates.jsonl", "--no-judge", "--json", *output)
    )
    assert {row["select by"]: float(row["solved"]) for row in found} == {
        name: pytest.approx(100 * one["solved"], abs=0.005) for name, one in record["select_by"].items()
    }
    assert {row["n"] for row in found} == {str(record["rows"])}


def test_eval_prints_its_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: EndpointServer
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIRJUDGE_CACHE", str(tmp_path / "cache.sqlite"))
    data = lines(tmp_path / "rows.jsonl", pairs(4))
    words = ("eval", "judgebench", "--data", data, "--model", "m", "--base-url", server.url, "--no-tools")
    done = command(*words, "--as", "csv", "--protocol", "first-order", code=0)
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["protocol"], row["n"]) == ("first-order", "4")
    assert "not comparable with the figures published on judgebench" in done.stderr
