"""What a command says about a file can be typed into a shell as it is, and then the file is judged."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import judge, results, through

CASES: dict[str, tuple[list[dict[str, Any]], str | None, list[str | None]]] = {
    # name: rows, the words that a user fills in, the verdicts' labels
    "columns in use elsewhere": (
        [{"question": "p", "answer_a": "x", "answer_b": "y", "winner": "A"}], None, [0],
    ),
    "columns with spaces and quotes": (
        [{"User question": "p", "Model A response": "x", "Model B response": "y", "Human label": "model a"}],
        None, [0],
    ),
    "names with a comma": (
        [{"prompt": "p", "Answer, A": "x", "Answer, B": "y", "the winner": "B"}], None, [None],
    ),
    "sides": ([{"Prompt": "p", "left_answer": "x", "right_answer": "y", "preference": "right"}], None, [1]),
    "annotations inside of objects": (
        [{"id": 1, "data": {"prompt": "p", "answer1": "x", "answer2": "y"},
          "annotations": [{"result": [{"value": {"selected": "right"}}]}]}], None, [1],
    ),
    "a test run of promptfoo": (
        [{"prompt": {"raw": "p"}, "response": {"output": "x"}, "success": True}], None, [None],
    ),
    "chats": ([{"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "x"}]}], None,
              [None]),
    "labels from 1": (
        [{"prompt": "p", "responses": ["x", "y"], "label": label} for label in (1, 2)], None, [0, 1],
    ),
    "labels from 0 or 1": (
        [{"prompt": "p", "responses": ["x", "y"], "label": 1} for _ in range(21)], None, [1] * 21,
    ),
    "labels with a comma, a quote and an equals sign": (
        [{"prompt": "p", "responses": ["x", "y"], "label": label} for label in ('it\'s "a"', "x, y=y")],
        "LETTER=B", [1, 1],
    ),
    "labels with spaces": (
        [{"prompt": "p", "responses": ["x", "y"], "label": label} for label in ("much better", "so so")],
        "LETTER=A", [0, 0],
    ),
    "classes in other words": (
        [{"prompt": "p", "response": "x", "label": label} for label in ("👌 fine", "meh", "meh")],
        "MEANING=fail", [None, None, None],
    ),
}  # fmt: skip


def typed(text: str) -> list[str]:
    """Return the words that a shell makes of a text."""
    run = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True, text=True)
    return run.stdout.split("\0")[:-1]


def advice(said: str) -> str:
    """Return the options that the last line names."""
    found = re.search(r"(--(?:column|labels) .*?)(?:, where .*| or --labels .*)?$", said.splitlines()[-1])
    assert found is not None, said
    return found[1]


@pytest.mark.parametrize("case", CASES)
def test_advice_about_a_file_works_when_typed(tmp_path: Path, endpoint: EndpointServer, case: str) -> None:
    endpoint.script = lambda body: chat(
        "<score>7</score>" if "Response B" not in str(body) else "<preference>A</preference>"
    )
    rows, filled, labels = CASES[case]
    name = "the rows.jsonl"
    (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = (name, "--no-tools", *through(endpoint))
    refused = judge(tmp_path, *command, code=2)
    options = advice(refused.stderr)
    if filled is not None:
        options = options.replace(*filled.split("="))
    assert "COLUMN" not in options
    run = judge(tmp_path, *command, *typed(options))
    assert run.returncode == 0, (options, run.stderr)
    found = sorted(
        results(tmp_path / "the rows.verdicts.jsonl"), key=lambda row: int(row["id"].split("-")[-1])
    )
    assert [row["label"] for row in found] == labels


def test_an_encoding_that_is_named_is_used(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.answers(chat("<score>7</score>"))
    with (tmp_path / "rows.csv").open("w", encoding="cp1251", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("prompt", "response"), ("Привет", "да"), ("", "")])
    run = judge(tmp_path, "rows.csv", "--no-tools", *through(endpoint))
    assert "bytes that are no UTF-8 are read as cp1252; --encoding names another encoding" in run.stderr
    arguments = ("--no-tools", "--encoding", "cp1251", "--overwrite", *through(endpoint))
    assert judge(tmp_path, "rows.csv", *arguments).returncode == 0
    assert "Привет" in endpoint.bodies[-1]["messages"][-1]["content"]
