"""Every known behaviour of providers, against a perfect judge: no failure is a verdict, and none is lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Self, cast

import pytest
import pytest_asyncio

from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.providers.behaviours import BEHAVIOURS, Behaviour
from tirjudge.generation.endpoint import http
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.options import JudgeOptions
from tirjudge_environments import JudgeTask, Message, StopReason
from tirjudge_sandbox import Sandbox
from tirjudge_sandbox.local import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAIR = JudgeTask(
    id="prime", prompt=(Message("user", "Name a prime above 10."),), candidates=("11", "12"), label=0
)
STOPS = {
    "judged": StopReason.VERDICT,
    "down": StopReason.GENERATOR_DOWN,
    "withheld": StopReason.GENERATOR_DOWN,
    "denied": StopReason.GENERATOR_DOWN,
    "token_budget": StopReason.TOKEN_BUDGET,
    "too_long": StopReason.PROMPT_TOO_LONG,
}
HONEST = {"text": 1, "fence": 2, "tools": 2}
"""Requests of an honest dialogue."""


class Opened:
    """A sandbox that is open already, which no engine opens or closes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None: ...


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with LocalSandbox(capacity=1, preload=()) as box:
        yield cast(Sandbox, Opened(box))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        return None

    monkeypatch.setattr(http, "sleep", sleep)


async def judged(server: EndpointServer, behaviour: Behaviour, sandbox: Sandbox) -> tuple[Judgment, bool]:
    server.script = lambda body: behaviour.play(body, len(server.asked) - 1)
    options = JudgeOptions(
        model="m",
        base_url=server.url,
        tier="tools" if behaviour.judge == "tools" else "turns",
        tools=behaviour.judge != "text",
        untrained="tir",
        order="given",
        retries=2,
    )
    key = behaviour.key or "sk-none-0123"
    async with JudgeEngine(options, sandbox=sandbox, api_key=key) as engine:
        found = await engine.judge(PAIR)
        return found, engine.denied


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_a_behaviour_never_becomes_a_verdict_of_its_own(
    server: EndpointServer, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.WARNING)
    behaviour = BEHAVIOURS[name]
    result, denied = await judged(server, behaviour, sandbox)
    # The server, which runs in this process, logs its own errors.
    ours = [one.message for one in caplog.records if one.name.startswith("tirjudge")]
    warnings = [line for line in ours if "retrying in" not in line]
    assert result.stop is STOPS[behaviour.outcome], result.detail
    assert denied == (behaviour.outcome == "denied")
    assert len(server.asked) <= (behaviour.requests or HONEST[behaviour.judge] + 1)
    if behaviour.outcome == "judged":
        assert result.verdict == "A"
        assert any(behaviour.words in line for line in warnings) if behaviour.words else not warnings
        assert len(result.programs) >= HONEST[behaviour.judge] - 1
    else:
        assert behaviour.words in result.detail
        assert result.verdict is None
    if behaviour.outcome == "withheld":
        assert "the key may not use" not in result.detail
