"""`tirjudge judge` with Claude, behind LiteLLM and through Anthropic's own endpoint for OpenAI's clients.

The servers on loopback refuse, ignore and cut as LiteLLM 1.108.7 was seen to do with an Anthropic model, and
as https://docs.anthropic.com/en/api/openai-sdk lists the fields of a request.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tests.tirjudge.endpoint_server import EndpointServer, called, chat, failure
from tests.tirjudge.judge_command import FAST, invoke

PAIR = {"id": "prime", "prompt": "Name a prime above 10.", "responses": ["11", "12"], "label": "A"}
PROGRAM = "print(int(response_a) % 2, int(response_b) % 2)"
VERDICT = "12 is even.\n<preference>A</preference>"


def judging(body: dict[str, Any]) -> dict[str, Any]:
    """Ask for a program in the first turn, and name A in the second; a stop string is cut off."""
    assert "response_format" not in body
    if body["messages"][-1]["role"] == "tool" or len(body["messages"]) > 1:
        return chat(VERDICT)
    if "tools" in body:
        return chat("", "tool_calls", tool_calls=[called(PROGRAM)])
    assert "\n```\n" in body["stop"]
    return chat(f"Let me check.\n```python\n{PROGRAM}")


def litellm(body: dict[str, Any]) -> Response | dict[str, Any]:
    if "seed" in body:
        return failure(
            400,
            "litellm.UnsupportedParamsError: anthropic does not support parameters: ['seed'], for "
            "model=claude-sonnet-4-5. To drop these, set `litellm.drop_params=True` or for proxy:\n\n"
            "`litellm_settings:\n drop_params: true`\n. \n If you want to use these params dynamically send "
            "allowed_openai_params=['seed'] in your request.",
            type="invalid_request_error",
            param=None,
            code="400",
        )
    return judging(body)


def anthropic(body: dict[str, Any]) -> Response | dict[str, Any]:
    """Ignore `seed`; other fields have the values that Anthropic accepts."""
    if body.get("n", 1) != 1 or not all(stop.strip() for stop in body.get("stop", ())):
        return failure(400, "n must be 1, and a stop sequence must contain more than white space")
    assert body["messages"][-1]["role"] in ("user", "tool")
    assert all(not message.get("content") or message["content"].strip() for message in body["messages"])
    return judging(body)


@pytest.mark.parametrize("tier", ["turns", "tools"])
@pytest.mark.parametrize("gateway", [litellm, anthropic])
def test_claude_judges_with_a_program(
    server: EndpointServer, tmp_path: Path, gateway: Any, tier: str
) -> None:
    server.script = gateway
    (tmp_path / "pair.jsonl").write_text(json.dumps(PAIR) + "\n", encoding="utf-8")
    words = (
        "--base-url",
        server.url,
        "--model",
        "claude",
        "--tier",
        tier,
        "--samples",
        "2",
        "--prompts",
        "tir",
        *FAST,
    )
    invoke("judge", "pair.jsonl", *words, folder=tmp_path, TIRJUDGE_API_KEY="sk-ant-test", code=0)
    row = json.loads((tmp_path / "pair.verdicts.jsonl").read_text(encoding="utf-8"))
    assert (row["verdict"], row["programs"], row["programs_failed"]) == ("A", 2, 0)
    outputs = [part["stdout"] for view in row["views"] for part in view["segments"] if "stdout" in part]
    assert outputs == ["1 0\n", "1 0\n"]
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-ant-test"}
    # An endpoint that does not refuse a seed gets it: with a seed, other endpoints repeat a text.
    assert ("seed" in server.bodies[-1]) == (gateway is anthropic)
