"""The OpenEnv adapter: a judge behind OpenEnv's own server, played through its client over a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from tests.environments.adapters.dialogues import (
    CHECKS,
    ROW,
    SCRIPTS,
    Outcome,
    Script,
    encoded_elsewhere,
    ours,
    outcome,
    settings,
)
from tests.environments.adapters.examples import example
from tirjudge_environments.adapters.openenv import JudgeAction, JudgeClient, judge_app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(judge_app(settings())) as address:
        yield address


@pytest.fixture(scope="module")
def checks_url() -> Iterator[str]:
    with serving(judge_app(settings(judge=CHECKS, tools={}))) as address:
        yield address


class serving:
    """Run a server in a thread of its own."""

    def __init__(self, app: Any) -> None:
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        self._socket = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = True
        self._thread.join()


async def played(script: Script, url: str) -> Outcome:
    async with JudgeClient(base_url=url) as env:
        result = await env.reset(row=script.row)
        assert script.row["prompt"] in result.observation.messages[0]["content"]
        written, observations = [], []
        for turn in script.turns:
            written.append(turn.fenced())
            result = await env.step(JudgeAction(text=written[-1]))
            observations += [message["content"] for message in result.observation.messages]
            if result.done:
                break
        assert result.done
        return Outcome("".join(written), tuple(observations), result.reward, result.observation.parts)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_dialogue_is_the_same_as_in_our_engine(script: Script, url: str, checks_url: str) -> None:
    plain = settings(**script.changes)
    expected = encoded_elsewhere(outcome(script, plain, await ours(script, plain)))
    assert await played(script, checks_url if script.judge == CHECKS else url) == expected


async def test_concurrent_dialogues_do_not_mix(url: str) -> None:
    each = await asyncio.gather(*(played(script, url) for script in SCRIPTS[:6]))
    alone = [await played(script, url) for script in SCRIPTS[:6]]
    assert each == alone


async def test_a_reward_over_several_views_is_refused_by_name() -> None:
    with serving(judge_app(settings(judge="tir-pointwise", options={}))) as address:
        async with JudgeClient(base_url=address) as env:
            with pytest.raises(RuntimeError, match=r"OpenEnv scores one rollout at a time.*JudgeRolloutFunc"):
                await env.reset(row=ROW)


async def test_the_example_rolls_out_a_model_that_runs_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(example("openenv_server", monkeypatch).app) as address:
        await example("openenv_judge", monkeypatch).main(address)
    assert capsys.readouterr().out.splitlines() == [
        "river 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
        "garden 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
    ]
