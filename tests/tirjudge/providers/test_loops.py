"""Dialogues that would not end, and fences at which a stop string cuts an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.providers.behaviours import FENCE, VERDICT, honest
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.options import JudgeOptions
from tirjudge_environments import JudgeTask, Message, StopReason
from tirjudge_sandbox.local import LocalSandbox

PAIR = JudgeTask(
    id="prime",
    prompt=(Message("user", "Name a prime above 10, and explain why it is one. " * 20),),
    candidates=("11", "12"),
    label=0,
)
TABLE = 'Both are numbers.\n```json\n{"A": 11, "B": 12}\n```\n'
ARGUMENT = "First I list the divisors of each number, and then I compare the lists with each other.\n"
UNTAGGED = f"The divisors are:\n```\n11: 1, 11\n12: 1, 2, 3, 4, 6, 12\n```\n{VERDICT}"
IN_BOLD = f"**The divisors:**\n```\n11: 1, 11\n```\n{VERDICT}"
AFTER_A_LINE = f"I list the divisors.\n\n```\n11: 1, 11\n```\n{VERDICT}"


def cut(text: str, body: dict[str, Any]) -> dict[str, Any]:
    """Cut a text at its first stop string, as hosted endpoints do, and count four characters as a token."""
    ends = [text.find(stop) for stop in body.get("stop", ()) if stop in text]
    said = text[: min(ends)] if ends else text
    usage = {"prompt_tokens": len(json.dumps(body["messages"])) // 4, "completion_tokens": len(said) // 4}
    return chat(said) | {"usage": usage}


LOOPS = {
    # Every answer ends with a fence that is no program.
    "a fence at the end": lambda body, before: TABLE,
    # Every answer begins from the start, whatever was written before.
    "starts again": lambda body, before: ARGUMENT + TABLE,
    "starts again in other words": lambda body, before: f"Attempt {before}. " + ARGUMENT + TABLE,
    "an untagged fence for ever": lambda body, before: f"{before}:\n```\nx\n```\n" * 50,
    "an opening fence for ever": lambda body, before: "Here it comes:\n```\n",
    "half a fence for ever": lambda body, before: "```json\n{",
}


async def judged(server: EndpointServer, text: Any) -> Judgment:
    server.asked.clear()
    server.script = lambda body: cut(text(body, len(server.asked) - 1), body)
    options = JudgeOptions(model="m", base_url=server.url, tier="turns", order="given", untrained="tir")
    sandbox = LocalSandbox(capacity=1, preload=())
    async with JudgeEngine(options, sandbox=sandbox, api_key="none") as engine:
        return await engine.judge(PAIR)


def as_written(body: dict[str, Any], before: int) -> str:
    """Answer as the perfect judge: a program, and then the verdict."""
    return str(honest({**body, "stop": []})["choices"][0]["message"]["content"])


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
async def test_a_looping_model_costs_at_most_three_honest_dialogues(
    server: EndpointServer, name: str
) -> None:
    fair = await judged(server, as_written)
    requests, tokens = len(server.asked), fair.usage.prompt_tokens + fair.usage.completion_tokens
    assert (fair.verdict, requests) == ("A", 2)
    looping = await judged(server, LOOPS[name])
    used = looping.usage.prompt_tokens + looping.usage.completion_tokens
    assert looping.stop is StopReason.MALFORMED
    assert len(server.asked) <= 3 * requests
    assert used <= 3 * tokens
    print(f"{name}: {len(server.asked)} requests, {used} tokens; honest: {requests}, {tokens}")


@pytest.mark.parametrize("text", [TABLE + VERDICT, UNTAGGED, IN_BOLD, AFTER_A_LINE, TABLE + TABLE + UNTAGGED])
async def test_a_verdict_behind_a_fence_is_not_lost_to_a_stop_string(
    server: EndpointServer, text: str
) -> None:
    """The stop string that ends a program also ends, or opens, every other fence."""
    result = await judged(server, lambda body, before: text)
    assert (result.verdict, len(server.asked)) == ("A", 2)
    assert [part.text for one in result.trajectories for part in one.segments] == [text]
    # Both answers are paid for.
    assert result.usage.completion_tokens > len(text) // 4


async def test_a_program_behind_another_fence_is_run(server: EndpointServer) -> None:
    """Without stop strings the model invents an output, which is dropped."""
    invented = TABLE + FENCE + "```output\n9 9\n```\nSo <preference>B</preference>"

    def text(body: dict[str, Any], before: int) -> str:
        return VERDICT if "1 0" in body["messages"][-1]["content"] else invented

    result = await judged(server, text)
    assert (result.verdict, len(server.asked)) == ("A", 3)
    assert [part.text for one in result.trajectories for part in one.segments] == [
        TABLE + FENCE,
        "```output\n1 0\n```\n",
        VERDICT,
    ]


async def test_the_end_of_an_answer_is_not_taken_for_a_fence(server: EndpointServer) -> None:
    """A judge that says nothing of a verdict is malformed, and is not asked twice."""
    result = await judged(server, lambda body, before: "Both answers are fine.")
    assert (result.stop, len(server.asked)) == (StopReason.MALFORMED, 1)
