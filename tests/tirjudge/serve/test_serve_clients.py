"""Clients of a served judge: the reward functions for TRL and verl."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tests.tirjudge.endpoint_server import EndpointServer, failure
from tests.tirjudge.judge_server import JudgeServer, judge_serving
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.serve.client import JudgeClient
from tirjudge.serve.messages import JudgeRequest
from tirjudge.serve.service import JudgeServerSettings
from tirjudge.serve.trl import JudgeReward
from tirjudge.serve.verl import compute_score
from tirjudge_environments import Context
from tirjudge_sandbox.server.guard import Access

TOKEN = "0123456789abcdef"


def marks(context: Context) -> str:
    """Score a response by its number of crosses; one with a question mark has no score."""
    words = context.prompt.messages[-1].content
    return "Hm." if "?!" in words else f"<score>{1 + words.count('✗')}</score>"


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    settings = JudgeServerSettings(access=Access(token=SecretStr(TOKEN)))
    with judge_serving(ScriptedGenerator(marks), settings) as server:
        yield server


async def test_trl_gets_each_completions_score(served: JudgeServer) -> None:
    logged: dict[str, float] = {}
    reward = JudgeReward(served.url, token=TOKEN)
    chat = [{"role": "user", "content": "Mark it."}]
    scores = await reward(
        prompts=["Mark it.", chat, "Mark it."],
        completions=["✗✗", [{"role": "assistant", "content": "✗"}], "?!"],
        completion_ids=[[1], [2], [3]],
        log_metric=logged.__setitem__,
    )
    assert scores == [3.0, 2.0, None]
    assert logged == {"judge/decided": 0.0, "judge/no_verdict": pytest.approx(1 / 3)}


async def test_a_judge_that_stays_down_is_an_error_and_no_score(server: EndpointServer) -> None:
    """TRL's trainer ends with it, as with any error of a reward."""
    server.answers(failure(503, "generator_down: off", {"retry-after": "0"}))
    with pytest.raises(GeneratorFailed, match="generator_down: off"):
        await JudgeReward(server.url)(prompts=["Mark it."], completions=["✗"])


async def test_verl_gets_a_score_and_what_it_logs(served: JudgeServer) -> None:
    # verl binds `reward_kwargs` and adds its own arguments and those of a reward model's router.
    bound = functools.partial(compute_score, url=served.url, token=TOKEN, prompt_key="asked")
    row: dict[str, Any] = {"data_source": "ours", "ground_truth": ""}
    info = {"asked": "Mark it.", "num_turns": 2}
    told = await bound(solution_str="✗✗✗", extra_info=info, reward_router_address=None, **row)
    assert told == {"score": 4.0, "judge_programs": 0.0, "judge_decided": 0.0, "judge_no_verdict": 0.0}
    with pytest.raises(GeneratorFailed, match="without a score: malformed"):
        await bound(solution_str="?!", extra_info=info, **row)
    told = await bound(solution_str="?!", extra_info=info, no_verdict_reward=0.5, **row)
    assert (told["score"], told["judge_no_verdict"]) == (0.5, 1.0)


def test_every_event_loop_has_its_own_client(served: JudgeServer) -> None:
    reward = JudgeReward(served.url, token=TOKEN)
    for _ in range(2):
        assert asyncio.run(reward(prompts=["Mark it."], completions=["✗"])) == [2.0]


async def test_the_token_comes_from_the_environment(
    served: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = JudgeRequest(prompt="Mark it.", responses=["✗"])
    async with JudgeClient(served.url) as stranger:
        with pytest.raises(GeneratorFailed, match="401"):
            await stranger.judge(question)
    monkeypatch.setenv("TIRJUDGE_SERVE_TOKEN", TOKEN)
    async with JudgeClient(served.url) as holder:
        assert (await holder.judge(question)).scores == [2.0]
