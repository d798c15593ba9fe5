"""Rewards of groups over HTTP: whole groups, members one by one, and the reward functions that send them."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.tirjudge.endpoint_server import EndpointServer, failure
from tests.tirjudge.judge_server import RESPONSE, JudgeServer, close_clients, judge_serving, longest
from tirjudge import Judge
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.group_rewards import GroupOptions
from tirjudge.serve.client import JudgeClient
from tirjudge.serve.messages import GroupRequest, MemberRequest
from tirjudge.serve.trl import JudgeGroupReward
from tirjudge.serve.verl import compute_group_score
from tirjudge_environments import Context


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(longest), tools=False) as server:
        yield server


@pytest.fixture
async def url(served: JudgeServer) -> AsyncIterator[str]:
    yield served.url
    await close_clients(served.url)


def member(completion: str, name: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "Write.", "completion": completion, "size": 3, "member": name, **more}


def test_one_request_rewards_a_group(served: JudgeServer) -> None:
    body = {
        "prompt": "Go on.",
        "completions": ["x", "yyy", "yy", "x", "a?"],
        "options": {"method": "round-robin"},
    }
    answer = served.post("/v1/group", body)
    assert answer.json() == {
        "rewards": [0.0, 1.0, 0.5, 0.0, None],
        "method": "round-robin",
        "calls": 6,
        "cached": 0,
        "comparisons": 6,
        "ties": 0,
        "no_verdict": 3,
        "decided": None,
        "detail": "",
        "duplicates": 1,
    }
    assert served.post("/v1/group", body).json()["cached"] == 6
    text = served.get("/metrics").text
    assert 'tirjudge_judgments_total{format="pairwise",stop="verdict"} 3.0' in text
    assert 'tirjudge_judgments_total{format="pairwise",stop="malformed"} 3.0' in text


@pytest.mark.parametrize(
    ("body", "way", "line"),
    [
        ({"completions": ["a"]}, ["completions"], "a group of 1 cannot be compared"),
        ({"options": {"budget": 1, "method": "pivot"}}, ["completions"], "a budget of 1 judge calls is too"),
        ({"prompt": " "}, ["prompt"], "the prompt is empty"),
    ],
)
def test_a_group_that_cannot_be_judged_is_refused_in_one_line(
    served: JudgeServer, body: dict[str, Any], way: list[str], line: str
) -> None:
    answer = served.post("/v1/group", {"prompt": "Go on.", "completions": ["a", "b", "c"], **body})
    (fault,) = answer.json()["detail"]
    assert (answer.status_code, fault["loc"]) == (422, ["body", *way])
    assert line in fault["msg"]


def test_a_failure_leaves_no_rewards(served: JudgeServer) -> None:
    answer = served.post("/v1/group", {"prompt": "Go on.", "completions": ["x", "yy", "DOWN"]})
    assert (answer.status_code, answer.json()) == (503, {"detail": "the model's machine is off"})


async def test_members_that_arrive_one_by_one_are_rewarded_together(served: JudgeServer) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:

        async def send(completion: str, name: str, **more: Any) -> Any:
            return (await client.post("/v1/group/member", json=member(completion, name, **more))).json()

        ways = [("xx", "1"), ("x", "2"), ("xxx", "3"), ("z", "4"), ("zz", "5"), ("zzz", "6")]
        options = {"method": "round-robin"}
        answers = await asyncio.gather(
            *(send(*way, options=options, group="ab"[way[0][0] == "z"]) for way in ways)
        )
        assert [answer["reward"] for answer in answers] == [0.5, 0, 1, 0, 0.5, 1]
        # A request that is repeated after its group was judged gets the same answer, at once.
        assert await send("xx", "1", options=options, group="a") == answers[0]


async def test_an_incomplete_group_is_waited_for_once_and_says_how_many_came(url: str) -> None:
    row = {"data_source": "d", "ground_truth": None, "extra_info": {"question": "Go on."}}
    bound = functools.partial(compute_group_score, url=url, group_size=4, wait_seconds=1.0, **row)
    started = time.monotonic()
    found = await asyncio.gather(bound(solution_str="a"), bound(solution_str="b"), return_exceptions=True)
    assert time.monotonic() - started < 5
    assert all(isinstance(one, GeneratorFailed) for one in found), found
    assert all(
        "424" in str(one) and "2 of 4 completions of the group arrived within 1 s" in str(one)
        for one in found
    )


async def test_trl_gets_rewards_by_prompt_from_a_server_and_in_this_process(url: str) -> None:
    chat = [{"role": "user", "content": "Go on."}]
    prompts = ["Compose.", chat, "Compose.", chat, chat]
    completions = ["xx", [{"role": "assistant", "content": "y"}], "x", "yyy", "y?"]
    async with Judge(generator=ScriptedGenerator(longest), tools=False) as judge:
        for source in (url, judge):
            logged: dict[str, float] = {}
            reward = JudgeGroupReward(source, "round-robin")
            asked = {"completion_ids": [[1]] * 5, "log_metric": logged.__setitem__}
            assert await reward(prompts=prompts, completions=completions, **asked) == [1, 0, 0, 1, None]
            assert logged == {
                "judge/calls": 2,
                "judge/cached": 0,
                "judge/ties": 0,
                "judge/no_comparison": 0.5,
                "judge/no_verdict": 0.2,
                "judge/duplicates": 0,
            }
            with pytest.raises(ValueError, match="a group of one cannot be compared: set num_generations"):
                await reward(prompts=["p", "q", "q"], completions=["a", "b", "c"])
            with pytest.raises(GeneratorFailed, match="machine is off"):
                await _once(reward, source)


async def _once(reward: JudgeGroupReward, source: Any) -> None:
    """Ask a judge that is down; a server is asked without the client's long retries."""
    if isinstance(source, str):
        async with JudgeClient(source, retries=0) as client:
            await client.group(GroupRequest(prompt="p", completions=["DOWN", "b"]))
    await reward(prompts=["p", "p"], completions=["DOWN", "b"])


async def test_equal_prompts_of_a_batch_stay_apart_with_a_group_size(url: str) -> None:
    prompts, completions = ["Twice."] * 4, ["x", "yy", "zzz", "wwww"]
    together, apart = (JudgeGroupReward(url, "round-robin", group_size=size) for size in (None, 2))
    assert await together(prompts=prompts, completions=completions) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert await apart(prompts=prompts, completions=completions) == [0, 1, 0, 1]


CRITERIA = [{"text": "It is brief.", "weight": 3.0, "polarity": None, "must_have": None}, "It is long."]
"""The fields without a value are what a dataset makes of fields that only other rows have."""


def by_criterion(context: Context) -> str:
    """Prefer the shortest response where the criterion asks for it, and the reference if there is one."""
    text = context.prompt.messages[-1].content
    responses = dict(RESPONSE.findall(text))
    wanted = max if "It is brief." not in text else min
    best = wanted(responses, key=lambda letter: len(responses[letter]))
    known = [letter for letter, response in responses.items() if f">{response}<" in text.replace("\n", "")]
    return f"<preference>{(known or [best])[0]}</preference>"


async def test_a_group_is_judged_by_its_criteria_and_reference() -> None:
    """By criteria, the brief one gets 3 of 4 parts of every comparison and so wins; by a reference, `xx`."""
    row: dict[str, Any] = {"data_source": "ours", "ground_truth": ""}
    info = {"question": "Write.", "rubric": CRITERIA, "answer": "xx"}
    texts, judge = ["xx", "x", "xxx"], Judge(generator=ScriptedGenerator(by_criterion), tools=False)
    options = GroupOptions(method="round-robin")
    columns = {"rubric": [CRITERIA] * 3 + [None] * 3, "answer": [None] * 3 + ["xx"] * 3}
    async with judge:
        by_criteria = await judge.areward_group("Write.", texts, options, criteria=CRITERIA)
        assert (by_criteria.rewards, by_criteria.calls) == ((0.5, 1, 0), 6)
        assert (await judge.areward_group("Write.", texts, options, reference="xx")).rewards[0] == 1
        assert (await judge.areward_group("Write.", texts, options)).rewards == (0.5, 0, 1)
        with judge_serving(ScriptedGenerator(by_criterion), tools=False) as server:
            for source in (judge, server.url):
                reward = JudgeGroupReward(
                    source, "round-robin", reference_column="answer", criteria_column="rubric"
                )
                found = await reward(prompts=["Write."] * 6, completions=texts * 2, **columns)
                assert found == [0.5, 1, 0, 1, 0, 0.5]
                with pytest.raises(ValueError, match=r"no column 'answer' \(named as reference\); it has"):
                    await reward(prompts=["p", "p"], completions=["a", "b"], rubric=[None, None])
            bound = functools.partial(
                compute_group_score, url=server.url, group_size=3, method="round-robin", extra_info=info
            )
            for keys, wanted in (
                ({"criteria_key": "rubric"}, [0.5, 1, 0]),
                ({"reference_key": "answer"}, [1, 0, 0.5]),
            ):
                scores = await asyncio.gather(*(bound(solution_str=one, **keys, **row) for one in texts))
                assert [one["score"] for one in scores] == wanted
            body = {"prompt": "Write.", "completions": texts, "criteria": ["It is long.", "It is long."]}
            refused = server.post("/v1/group", body)
            assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, ["body", "criteria"])
            await close_clients(server.url)


async def test_verl_scores_every_response_by_itself(url: str) -> None:
    bound = functools.partial(
        compute_group_score, url=url, group_size=3, method="round-robin", prompt_key="asked", wait_seconds=20
    )
    row: dict[str, Any] = {"data_source": "ours", "ground_truth": "", "extra_info": {"asked": "Write it."}}
    scores = await asyncio.gather(*(bound(solution_str=text, **row) for text in ("xx", "x", "xxx")))
    assert [one["score"] for one in scores] == [0.5, 0, 1]
    assert scores[0] == {"score": 0.5, "judge_calls": 1.0, "judge_no_verdict": 0.0}
    silent = [bound(solution_str=text, no_verdict_reward=0.25, **row) for text in ("a?", "b?", "c?")]
    assert [one["score"] for one in await asyncio.gather(*silent)] == [0.25] * 3
    quiet = await asyncio.gather(
        *(bound(solution_str=text, **row) for text in ("a?", "b?", "c?")), return_exceptions=True
    )
    assert {str(one) for one in quiet} == {
        "the judge ended without a verdict on any comparison of this response"
    }
    with pytest.raises(ValueError, match=r"'ours': no column 'question' \(named as prompt\)"):
        await compute_group_score(solution_str="x", url=url, group_size=2, **row)


async def test_a_member_is_retried_under_its_name(server: EndpointServer) -> None:
    told = {
        "reward": 1.0,
        "group": {
            "rewards": [1.0, 0.0], "method": "pivot", "calls": 1, "cached": 0, "comparisons": 1, "ties": 0,
            "no_verdict": 0, "duplicates": 0,
        },
    }  # fmt: skip
    server.answers(failure(503, "down", {"retry-after": "0"}), told)
    async with JudgeClient(server.url) as client:
        asked = MemberRequest(prompt="p", completion="c", size=2, member="one")
        assert (await client.member(asked)).reward == 1
    assert [body["member"] for body in server.bodies] == ["one", "one"]
