"""`tirjudge ifeval`: computes IFEval's numbers with one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.tirjudge.benchmark_data import benchmark_file
from tirjudge.cli import app


def ifeval(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["ifeval", *arguments])


def rows(path: Path, *fields: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in fields))
    return str(path)


def test_the_numbers_of_gpt_4() -> None:
    """IFEval's Table 3 prints 76.89, 83.57, 79.30 and 85.37, with randomly drawn letters."""
    run = ifeval(
        str(benchmark_file("ifeval/responses-gpt4.jsonl")),
        "--prompts",
        str(benchmark_file("ifeval/input_data.jsonl")),
    )
    assert run.exit_code == 0
    _, _, prompts, instructions, *kinds = run.stdout.splitlines()
    assert prompts.split()[4::3] == ["77.08", "79.67"]
    assert instructions.split()[1::3] == ["83.69", "85.61"]
    assert len(kinds) == 25


def test_a_row_may_hold_its_own_instructions_and_bad_ones_are_reported(tmp_path: Path) -> None:
    asked = {"instruction_id_list": ["punctuation:no_comma", "words-at-most"], "kwargs": [{}, {"number": 2}]}
    file = rows(
        tmp_path / "rows.jsonl",
        {"id": "x", "prompt": "p", "response": "*a, b", **asked},
        {"prompt": "p", "response": "a b", **asked},
        {"prompt": "p", "response": "a b"},
        {"prompt": "p", "response": "a", "instruction_id_list": ["no:\x1b[2Jsuch"], "kwargs": [{}]},
        {"prompt": "p", "responses": ["a", "b"], **asked},
    )
    run = ifeval(file, "--output", str(tmp_path / "out.jsonl"))
    assert run.exit_code == 1
    assert "checked   2 responses, 4 instructions, 3 rows failed" in run.stdout
    assert [line.partition("rows.jsonl:")[2][:1] for line in run.stderr.splitlines()] == ["3", "4", "5"]
    assert "\x1b" not in run.stderr
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["id"], first["strict"], first["follows_all_loose"]) == ("x", [False, True], False)
    assert second["follows_all_strict"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a FILE of responses"),
        (("rows.jsonl", "--prompts", "rows.jsonl"), "no text `prompt` with an `instruction_id_list`"),
        (("rows.jsonl", "--output", "rows.jsonl"), "is the input"),
        (("none.jsonl",), "none.jsonl"),
    ],
)
def test_wrong_usage_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "rows.jsonl", {"prompt": "p", "response": "a"})
    run = ifeval(*arguments)
    assert run.exit_code == 2
    assert said in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_the_checkable_instructions_are_listed() -> None:
    names = ifeval("--names").stdout.splitlines()
    assert "keywords:letter_frequency" in names
    assert "words-at-least" in names
    assert len(names) == 25 + 23
