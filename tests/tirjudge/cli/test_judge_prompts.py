"""The prompts of `tirjudge judge`: the sentence about variables, and prompts of one's own."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import (
    FAST,
    asking_as_tir,
    invoke,
    judge,
    pairs,
    results,
    through,
    write_rows,
)
from tirjudge_environments.turn_reader import Turn

NAMED = "Every program finds the texts above defined as variables: `prompt`, `response_a`, `response_b`"


def asked(endpoint: EndpointServer) -> list[str]:
    """Return the first message of every dialogue so far."""
    return [body["messages"][0]["content"] for body in endpoint.bodies if len(body["messages"]) == 1]


def copying(body: dict[str, Any]) -> dict[str, Any]:
    """Play a model that copies the responses into its program, and uses the variables after a note."""
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
    judge(tmp_path, pairs(1), "--order", "given", *asking_as_tir(endpoint), code=0)
    assert NAMED in asked(endpoint)[0]
    assert "Note: `response_a`, `response_b` had the given text already." in str(
        endpoint.bodies[1]["messages"][-1]
    )
    (row,) = results(tmp_path / "rows.verdicts.jsonl")
    assert (row["verdict"], row["decided"], row["programs"]) == ("A", True, 2)
    invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)
    # The note is about this program alone: beside another one it is an output that nobody printed.
    changed = {
        **row,
        "views": json.loads(json.dumps(row["views"]).replace("response_a, response_b = ", "a, b = ")),
    }
    write_rows(tmp_path / "other.verdicts.jsonl", [changed])
    other = invoke("reproduce", "other.verdicts.jsonl", folder=tmp_path, code=1)
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
    judge(tmp_path, pairs(1), *words, *through(endpoint), code=0)
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
    invoke("eval", "judgebench", "--name-variables", folder=tmp_path, code=2)


STRICT = """\
system = "You are strict."

[texts]
pairwise = '''
Question: {prompt}
First: {response A}
Second: {response B}
Answer <preference>A</preference> or <preference>B</preference>.'''

[[examples]]
prompt = "Name a prime."
responses = ["4", "7"]
answer = "<preference>B</preference>"

[[examples]]
prompt = "Only for lists."
responses = ["1", "2", "3"]
answer = "<preference>C</preference>"
"""
OURS = ("--prompts", "strict.toml", "--no-name-variables", "--order", "given")


@pytest.fixture
def strict(tmp_path: Path, endpoint: EndpointServer) -> tuple[str, ...]:
    """Two rows, prompts of one's own, and the words that judge them."""
    endpoint.script = lambda body: chat("<preference>A</preference>")
    (tmp_path / "strict.toml").write_text(STRICT, encoding="utf-8-sig")
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    return ("rows.jsonl", *OURS, *through(endpoint))


def test_a_file_gives_the_system_message_the_text_and_the_examples_that_fit(
    tmp_path: Path, endpoint: EndpointServer, strict: tuple[str, ...]
) -> None:
    assert judge(tmp_path, *strict, "--limit", "1").returncode == 0
    text = "Question: {}\nFirst: {}\nSecond: {}\n"
    text += "Answer <preference>A</preference> or <preference>B</preference>."
    assert [(one["role"], one["content"]) for one in endpoint.bodies[0]["messages"]] == [
        ("system", "You are strict."),
        ("user", text.format("Name a prime.", "4", "7")),
        ("assistant", "<preference>B</preference>"),
        ("user", text.format("Question 0", "x", "y")),
    ]


def test_a_run_resumes_with_the_same_content_alone(tmp_path: Path, strict: tuple[str, ...]) -> None:
    assert judge(tmp_path, *strict, "--limit", "1").returncode == 0
    (tmp_path / "moved.toml").write_text(STRICT)
    moved = [word.replace("strict.toml", "moved.toml") for word in strict]
    assert judge(tmp_path, *moved).returncode == 0
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 2
    assert invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path).returncode == 0
    (tmp_path / "strict.toml").write_text(STRICT.replace("strict.", "kind."))
    other = judge(tmp_path, *strict, code=2)
    assert 'prompts was "sha256:' in other.stderr
    # The same prompts as an option of the format are recorded by their content as well.
    words = ("rows.jsonl", "--format", "tir-pairwise", "--option", "prompts=strict.toml", *strict[3:])
    judge(tmp_path, *words, "--output", "named.verdicts.jsonl", code=0)
    assert invoke("reproduce", "named.verdicts.jsonl", folder=tmp_path).returncode == 0
    (tmp_path / "strict.toml").write_text(STRICT)
    assert judge(tmp_path, *words, "--output", "named.verdicts.jsonl").returncode == 2


def test_a_kind_without_a_text_has_the_paper_s(
    tmp_path: Path, endpoint: EndpointServer, strict: tuple[str, ...]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [{**pairs(1)[0], "responses": ["x", "y", "z"]}])
    assert judge(tmp_path, *strict).returncode == 0
    *_, example, answer, last = endpoint.bodies[0]["messages"]
    assert "Response C:\n3" in example["content"]
    assert answer["content"] == "<preference>C</preference>"
    assert "Response C:\nz" in last["content"]


def test_the_file_of_the_documentation_judges(tmp_path: Path, endpoint: EndpointServer) -> None:
    """The command of the page, with its file; its example is a dialogue that the format could have had."""
    found = list(blocks((ROOT / "docs" / "judge.md",)))
    (toml,) = (one.code for one in found if one.language == "toml" and "[[examples]]" in one.code)
    (command,) = (one.code for one in found if "--prompts support.toml" in one.code)
    (tmp_path / "support.toml").write_text(toml)
    (tmp_path / "rows.csv").write_text("prompt,response_a,response_b\nWhen?,At nine.,At ten.\n")
    endpoint.script = lambda body: chat("<preference>B</preference>")
    words = command.strip().replace("http://localhost:8000/v1", endpoint.url).split()[2:]
    judge(tmp_path, *words, *FAST, "--order", "given", code=0)
    system, asked, answered, question = (one["content"] for one in endpoint.bodies[0]["messages"])
    assert system.startswith("You judge support answers.")
    assert "Answer B:\nWe open at nine every morning except on Sundays.\n" in asked
    assert "Answer A:\nAt nine.\n" in question
    program = Turn(answered).source
    shown = ["We open at nine.", "We open at nine every morning except on Sundays."]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {"responses": shown})
    assert f"```output\n{printed.getvalue()}```" in answered
    assert Turn(answered).answer("preference") == "A"
