"""Replaying a dialogue of native tool calls from its final messages."""

from __future__ import annotations

from typing import Any

from tests.environments.adapters.dialogues import ASK, COUNT, Script, Turn, ours, outcome, settings
from tirjudge_environments import Reward
from tirjudge_environments.adapters.dialogues import SandboxThread, ToolDialogue


def message(turn: Turn) -> dict[str, Any]:
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in turn.calls()]
    return {"role": "assistant", "content": turn.text, "tool_calls": calls}


async def test_the_last_turn_of_the_budget_runs_no_program() -> None:
    limited = settings(options={"order": "given", "protocol": "tool"}, turns=2, tool_calls=5)
    script = Script("two turns", (ASK, ASK))
    dialogue = ToolDialogue(limited, script.row, framework="TRL")
    thread = SandboxThread.shared(limited.sandbox, limited.sandbox_options)
    output = await thread.awaited(dialogue.call(COUNT, thread.sandbox))
    messages = [message(ASK), {"role": "tool", "content": output}, message(ASK)]
    score = await dialogue.score(messages, dialogue.executions)
    expected = outcome(script, limited, await ours(script, limited))
    assert isinstance(score, Reward)
    assert (score.total, score.parts) == (expected.total, expected.parts)
