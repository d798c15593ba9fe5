"""Labels are no setting of judging: a run goes on with others, and only what follows from them changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import asking_as_tir, counting, judge, results, through, write_rows
from tirjudge.cli import app

ROWS: list[dict[str, Any]] = [
    {"id": "long", "prompt": "p", "responses": ["x", "xyz"]},
    {"id": "short", "prompt": "q", "responses": ["xyz", "x"]},
    {"id": "other", "prompt": "r", "responses": ["xy", "x"]},
]
LABELS = {"without": (None, None, None), "first": ("B", "B", "tie"), "second": ("A", "A>>B", "A")}
FOLLOWS = {"seconds", "wall_seconds", "cpu_seconds", "where", "reward"}
"""Fields that differ between two runs: times and places, and rewards, which a new label leaves out."""


def labelled(name: str) -> list[dict[str, Any]]:
    return [row | {"label": label} for row, label in zip(ROWS, LABELS[name], strict=True)]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in FOLLOWS}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def judged(folder: Path, endpoint: EndpointServer, name: str, *options: str) -> tuple[Any, list[Any]]:
    folder.mkdir(exist_ok=True)
    write_rows(folder / "rows.jsonl", labelled(name))
    asked = (through if "--format" in options else asking_as_tir)(endpoint)
    run = judge(folder, "rows.jsonl", "--order", "both", *options, *asked, code=0)
    return run, sorted(results(folder / "rows.verdicts.jsonl"), key=lambda row: str(row["id"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--samples", "2"),
        ("--format", "j1-pav"),
        ("--format", "judgelrm-pair", "--option", "terms=relation-only"),
    ],
    ids=str,
)
@pytest.mark.parametrize("before", every(2, ["first", "without"]))
def test_a_run_with_other_labels_is_that_of_the_fresh_run(
    tmp_path: Path, endpoint: EndpointServer, before: str, options: tuple[str, ...]
) -> None:
    """Accuracy and all fields but rewards are those of a run that had these labels from the start."""
    answers = {
        "j1-pav": "<think>So.</think><answer> [[A]] </answer>",
        # The format itself opens the thinking.
        "judgelrm-pair": "So.</think><answer>7</answer><answer>3</answer>",
    }
    endpoint.script = lambda body: chat(answers[options[1]]) if "--format" in options else counting(body)
    judged(tmp_path / "old", endpoint, before, *options)
    asked = len(endpoint.asked)
    again, rows = judged(tmp_path / "old", endpoint, "second", *options)
    assert len(endpoint.asked) == asked, "nothing is judged again"
    assert "3 rows have another label than before" in again.stderr
    assert not any("reward" in view for row in rows for view in row["views"])
    fresh, expected = judged(tmp_path / "new", endpoint, "second", *options)
    assert without_times(rows) == without_times(expected)
    assert [line for line in again.stdout.splitlines() if line.startswith(("accuracy", "ties"))] == [
        line for line in fresh.stdout.splitlines() if line.startswith(("accuracy", "ties"))
    ]
    # Once changed, nothing is left to change.
    content = (tmp_path / "old/rows.verdicts.jsonl").read_bytes()
    last, _ = judged(tmp_path / "old", endpoint, "second", *options)
    assert "another label" not in last.stderr
    assert (tmp_path / "old/rows.verdicts.jsonl").read_bytes() == content
    assert not list((tmp_path / "old").glob("*.new"))


def test_another_translation_of_labels_goes_on_too(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = counting
    write_rows(tmp_path / "rows.jsonl", [row | {"who": number + 1} for number, row in enumerate(ROWS[:2])])
    command = ("rows.jsonl", *asking_as_tir(endpoint))
    assert judge(tmp_path, *command, "--limit", "1").returncode == 0
    run = judge(tmp_path, *command, "--column", "label=who", "--labels", "1=B,2=A", code=0)
    assert "1 row has another label than before" in run.stderr
    assert "accuracy  100.0% [34.2%, 100.0%], n = 2" in run.stdout
    run = judge(tmp_path, *command, "--column", "label=who", "--labels", "1=A,2=")
    assert "accuracy  0.0% [0.0%, 79.3%], n = 1" in run.stdout
    shown = CliRunner().invoke(app, ["reproduce", str(tmp_path / "rows.verdicts.jsonl"), "--json"])
    assert json.loads(shown.stdout)["verdicts_changed"] == 0
