"""Scripted teachers behind a real endpoint that count words with a program and err on request."""

from __future__ import annotations

from typing import Any

from tests.tirjudge.endpoint_server import called, chat
from tirjudge_environments import JudgeTask, Message, open_environment
from tirjudge_training.rl.dynamic_sampling import FormattedTask

STUDENT = {format: open_environment(format, prompts="mini") for format in ("tir-pairwise", "tir-pointwise")}
"""The student's judges."""
COUNT = "print(len(response_a.split()))"
SCORE = "print(len(response.split()))"
GIVEN_ANSWER = "The right answer is Response "


def word_count_tasks(count: int, *, hard: int = 0, format: str = "tir-pairwise") -> list[FormattedTask]:
    """Return tasks that ask which response has two words; the first teacher fails the last `hard` ones."""
    return [
        FormattedTask(
            format,
            JudgeTask(
                id=f"task-{i}",
                prompt=(Message("user", f"{'Hard: ' if i >= count - hard else ''}write two words, {i}."),),
                candidates=("two words", "one") if i % 2 else ("one", "two words"),
                label=0 if i % 2 else 1,
            ),
        )
        for i in range(count)
    ]


def native(body: dict[str, Any]) -> dict[str, Any]:
    """A model with native calls and hidden reasoning."""
    assert [tool["function"]["name"] for tool in body["tools"]] == ["run_python"]
    asked, last = str(body["messages"][0]["content"]), body["messages"][-1]
    if last["role"] == "tool":
        return chat(verdict(asked, last["content"]), reasoning_content="Secret: it said a number.")
    call = called(COUNT if "Response B:" in asked else SCORE, "call_0")
    return chat("I count.", "tool_calls", tool_calls=[call], reasoning_content="Secret: to count is best.")


def fenced(body: dict[str, Any]) -> dict[str, Any]:
    """The same model with fenced programs, through plain chat."""
    assert "tools" not in body
    asked, last = str(body["messages"][0]["content"]), body["messages"][-1]
    if last["content"].startswith("```output"):
        return chat(verdict(asked, last["content"].splitlines()[1]))
    return chat(f"I count.\n```python\n{COUNT}\n```\n")


def verdict(asked: str, printed: str) -> str:
    """Return the verdict by word count; the opposite for a hard task, unless the prompt has the answer."""
    good = printed == "2"
    if GIVEN_ANSWER in asked:
        return f"Counted.\n<preference>{asked.split(GIVEN_ANSWER)[1][0]}</preference>"
    if "Hard:" in asked:
        good = not good
    if "Response B:" in asked:
        return f"Counted.\n<preference>{'A' if good else 'B'}</preference>"
    return f"Counted.\n<score>{9 if good else 2}</score>"
