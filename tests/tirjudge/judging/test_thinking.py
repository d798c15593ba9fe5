"""Answers of reasoning models: the thinking that begins them, and that a tag ends, is no part of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judge_server import judge_serving
from tirjudge import Judge
from tirjudge.data.inspection import InspectedRows
from tirjudge.data.rows import RowFile
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import Context
from tirjudge_environments.tasks import Columns
from tirjudge_environments.turn_reader import without_thinking

DRAFT = "My first draft has many many words."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (f"<think>\n{DRAFT}\n</think>\n\nPlain.", "Plain."),
        (f"  <think>{DRAFT}</think>Plain.", "Plain."),
        (f"{DRAFT}\n</think>\n\nPlain.", "Plain."),
        ("</think>\nPlain.", "Plain."),
        (f"<thinking>{DRAFT}</thinking>\nPlain.", "Plain."),
        (f"<seed:think>{DRAFT}</seed:think>Plain.", "Plain."),
        (f"[THINK]{DRAFT}[/THINK]Plain.", "Plain."),
        (f"◁think▷{DRAFT}◁/think▷Plain.", "Plain."),
        (f"<|START_THINKING|>{DRAFT}<|END_THINKING|>Plain.", "Plain."),
        (f"<|begin_of_thought|>\n{DRAFT}\n<|end_of_thought|>\n\nPlain.", "Plain."),
        (
            f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>Plain.",
            "Plain.",
        ),
        (f"analysis{DRAFT}assistantfinalPlain.", "Plain."),
        ("analysis of the moon", None),
        (f"<think>{DRAFT}</think><think>Again.</think>\nPlain.", "Plain."),
        (f"<think>{DRAFT}</think>", ""),
        (f"<think>{DRAFT}</think>It ends with </think>.", "It ends with </think>."),
        (f"<think>{DRAFT}", f"<think>{DRAFT}"),
        ("A model closes its thinking with </think> and goes on.", None),
        ("Write `<think>x</think>` around it.", None),
        ("Plain.", None),
        ("", None),
    ],
)
def test_what_is_left_of_an_answer(text: str, answer: str | None) -> None:
    assert without_thinking(text) == (text if answer is None else answer)


def judged(row: dict[str, Any], **options: Any) -> tuple[str, Any]:
    """Judge a row; return what the judge was shown, and the judgment."""
    seen: list[str] = []

    def watching(context: Context) -> str:
        seen.append(context.prompt.messages[-1].content)
        return "<score>5</score>" if "response" in row else "<preference>A</preference>"

    with Judge(generator=ScriptedGenerator(watching), tools=False, order="given", **options) as judge:
        (result,) = judge.batch([row]).judgments
    return "\n".join(seen), result


THOUGHT = f"<think>{DRAFT}</think>Plain."


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Be brief.", "response": THOUGHT},
        {"prompt": "Be brief.", "responses": [THOUGHT, "Longer."]},
        {"prompt": "Be brief.", "response": [{"role": "assistant", "content": THOUGHT}]},
        {"prompt": "Be brief.", "response": [
            {"role": "assistant", "content": THOUGHT, "tool_calls": [{"name": "f", "arguments": "{}"}]},
            {"role": "tool", "content": "x"}]},
    ],
)  # fmt: skip
def test_the_judge_is_shown_the_answer_alone(row: dict[str, Any]) -> None:
    shown, result = judged(row)
    assert "Plain." in shown
    assert DRAFT not in shown
    assert all(DRAFT not in str(one) for one in result.episode.task.candidates)
    for options in ({"judge_thinking": True}, {"exact": True}):
        assert DRAFT in judged(row, **options)[0]


def test_an_answer_that_is_only_thinking_is_empty() -> None:
    shown, result = judged({"prompt": "Be brief.", "responses": [f"<think>{DRAFT}</think>", "Plain."]})
    assert (shown, result.verdict) == ("", "B")


def test_a_group_and_a_server_leave_thinking_out() -> None:
    seen: list[str] = []

    def watching(context: Context) -> str:
        seen.append(context.prompt.messages[-1].content)
        return "<score>5</score>" if "<score>" in seen[-1] else "<preference>A</preference>"

    with judge_serving(ScriptedGenerator(watching), tools=False) as server:
        server.judge({"prompt": "Be brief.", "responses": [THOUGHT]})
        group = {"prompt": "Be brief.", "completions": [THOUGHT, "Longer."]}
        assert server.post("/v1/group", group).status_code == 200
    assert len(seen) == 2
    assert all("Plain." in text and DRAFT not in text for text in seen)


def test_thinking_is_noted_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "p", "response": "<think>x</think>y"}\n' * 3)
    rows = InspectedRows(RowFile(str(path), name="rows.jsonl"), Columns(), None, thinking=False)
    (note,) = rows.inspect()
    assert note == (
        "rows.jsonl: 3 of 3 inspected rows have a response with thinking, which is not judged "
        "(--judge-thinking judges it) (first: rows.jsonl:1)"
    )
    assert not list(InspectedRows(RowFile(str(path)), Columns(), None).inspect())
