"""What `tirjudge judge` asks a model: the sentence about variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, pairs, results, through, write_rows

NAMED = "Every program finds the texts above defined as variables: `prompt`, `response_a`, `response_b`"


def asked(endpoint: EndpointServer) -> list[str]:
    """Return the first message of every dialogue so far."""
    return [body["messages"][0]["content"] for body in endpoint.bodies if len(body["messages"]) == 1]


def copying(body: dict[str, Any]) -> dict[str, Any]:
    """Play a model that copies the responses into its program, and uses the variables once it is told."""
    last = body["messages"][-1]["content"]
    if len(body["messages"]) > 1 and "Note: " not in last:
        return chat("<preference>A</preference>")
    copied = "response_a, response_b = 'x', 'y'\n" if len(body["messages"]) == 1 else ""
    check = (
        "for name, text in zip('AB', (response_a, response_b)):\n    print(name, int(text == 'x'), 'of 1')\n"
    )
    return chat(f"```python\n{copied}{check}```\n")


def test_a_model_that_copies_the_responses_is_told_and_decides_with_the_variables(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = copying
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    run = judge(tmp_path, "rows.jsonl", "--order", "given", *through(endpoint))
    assert run.returncode == 0, run.stderr
    assert NAMED in asked(endpoint)[0]
    assert "Note: `response_a`, `response_b` had the given text already." in str(
        endpoint.bodies[1]["messages"][-1]
    )
    (row,) = results(tmp_path / "rows.verdicts.jsonl")
    assert (row["verdict"], row["decided"], row["programs"]) == ("A", True, 2)
    again = invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path)
    assert again.returncode == 0, again.stdout
    # The note is about this program alone: beside another one it is an output that nobody printed.
    changed = {
        **row,
        "views": json.loads(json.dumps(row["views"]).replace("response_a, response_b = ", "a, b = ")),
    }
    write_rows(tmp_path / "other.verdicts.jsonl", [changed])
    other = invoke("reproduce", "other.verdicts.jsonl", folder=tmp_path)
    assert other.returncode == 1
    assert "the judge was shown" in other.stdout + other.stderr


@pytest.mark.parametrize(
    "words",
    [("--exact",), ("--no-bindings",), ("--no-tools",), ("--no-name-variables",), ("--note-of", "judge")],
    ids=str,
)
def test_no_variables_are_named(tmp_path: Path, endpoint: EndpointServer, words: tuple[str, ...]) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "tirjudge.json").write_text('{"prompts": "tir"}')
    endpoint.script = lambda body: chat("<preference>A</preference>")
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    run = judge(tmp_path, "rows.jsonl", *words, *through(endpoint))
    assert run.returncode == 0, run.stderr
    assert asked(endpoint)
    assert "variables:" not in str(asked(endpoint))


def test_a_benchmark_asks_as_before(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    row = {"pair_id": "1", "original_id": "1", "source": "mmlu-pro", "question": "2 + 2?", "label": "A>B"}
    write_rows(
        tmp_path / "rows.jsonl", [{**row, "response_model": "m", "response_A": "4", "response_B": "5"}]
    )
    run = invoke("eval", "judgebench", "--data", "rows.jsonl", *through(endpoint), folder=tmp_path)
    assert asked(endpoint), run.stderr
    assert "variables:" not in str(asked(endpoint))
    refused = invoke("eval", "judgebench", "--name-variables", folder=tmp_path)
    assert refused.returncode == 2


@pytest.mark.parametrize("command", ["judge", "criteria"])
def test_an_earlier_run_goes_on_with_its_prompts(
    tmp_path: Path, endpoint: EndpointServer, command: str
) -> None:
    endpoint.script = lambda body: chat("- It is right.\n<preference>A</preference>")
    words = (command, "rows.jsonl", "--limit", "1", *through(endpoint))
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    assert invoke(*words, "--no-name-variables", folder=tmp_path).returncode == 0
    (settings,) = tmp_path.glob("*.settings.json")
    recorded = json.loads(settings.read_text())
    assert recorded["settings"].pop("name_variables") is False
    settings.write_text(json.dumps(recorded))
    run = invoke(command, "rows.jsonl", *through(endpoint), folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "variables:" not in str(endpoint.bodies)
    other = invoke(command, "rows.jsonl", "--overwrite", *through(endpoint), folder=tmp_path)
    assert other.returncode == 0, other.stderr
    assert "variables:" in str(endpoint.bodies)
