"""Two tokens at one judge server: neither reads, joins or changes what belongs to the other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tests.tirjudge.judge_server import JudgeServer, judge_serving, longest
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.serve.service import OPEN_PATHS, JudgeServerSettings
from tirjudge_environments import Completion, Context, Finish
from tirjudge_sandbox.server.guard import Access

TOKENS = "a" * 32, "b" * 32
ROUND = {"options": {"method": "round-robin"}}
SECRET = "marmalade"
"""A word that only the second caller sends."""


def settings(*tokens: str) -> JudgeServerSettings:
    first, *further = map(SecretStr, tokens)
    access = Access(token=first, further_tokens=tuple(further), open_paths=OPEN_PATHS)
    return JudgeServerSettings(access=access)


def scoring(context: Context) -> str:
    text = context.prompt.messages[-1].content
    return longest(context) if "Response B" in text else "<score>7</score>"


@pytest.fixture
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(scoring), settings(*TOKENS), tools=False) as server:
        yield server


def holder(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def member(completion: str, name: str, **more: Any) -> dict[str, Any]:
    return {"prompt": "Write.", "completion": completion, "size": 2, "member": name, **ROUND, **more}


def conversation(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Write."}, {"role": "assistant", "content": text}]


BODIES: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "/v1/judge": lambda text, name: {"prompt": "Write.", "responses": [text, "x"], "id": name},
    "/v1/group": lambda text, name: {"prompt": "Write.", "completions": [text, "x"]},
    "/v1/group/member": lambda text, name: member(text, name, size=1, wait_seconds=0.3),
    "/get_reward": lambda text, name: {"query": [f"Write.{text}"], "prompts": ["Write."]},
    "/remote_rm": lambda text, name: {"prompt": "Write.", "response": text},
    "/v1/chat/completions": lambda text, name: {
        "model": "scripted",
        "messages": conversation(text),
        "id": name,
    },
}
"""Route to a body with a text and a name of the caller's."""


def test_no_route_shows_a_token_what_another_token_sent(served: JudgeServer) -> None:
    paths = served.get("/openapi.json", headers=holder(TOKENS[0])).json()["paths"]
    posts = {path for path, methods in paths.items() if "post" in methods}
    assert posts == set(BODIES), "a new route needs a body here"
    model = served.get("/v1/models", headers=holder(TOKENS[0])).json()["data"][0]["id"]
    for path, body in BODIES.items():
        alone = body("own text", "same name") | ({"model": model} if "chat" in path else {})
        other = body(f"{SECRET} {SECRET}", "same name") | ({"model": model} if "chat" in path else {})
        before = served.post(path, alone, headers=holder(TOKENS[0]))
        theirs = served.post(path, other, headers=holder(TOKENS[1]))
        after = served.post(path, alone, headers=holder(TOKENS[0]))
        assert {before.status_code, theirs.status_code, after.status_code} <= {200, 422}, (path, theirs.text)
        assert SECRET not in before.text + after.text
    for path in paths:
        if "get" in paths[path]:
            assert SECRET not in served.get(path, headers=holder(TOKENS[0])).text
    for path in posts:
        assert served.post(path, {}, headers=holder("c" * 32)).status_code == 401


def test_a_group_that_was_asked_by_another_token_is_not_known(served: JudgeServer) -> None:
    body = {"prompt": "Write.", "completions": [SECRET, "x"]}
    first, again = (served.post("/v1/group", body, headers=holder(TOKENS[1])).json() for _ in range(2))
    assert (first["cached"], again["cached"]) == (0, 1)
    assert served.post("/v1/group", body, headers=holder(TOKENS[0])).json()["cached"] == 0


async def test_no_token_joins_or_reads_the_group_of_another(served: JudgeServer) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:

        async def send(token: str, *way: str, **more: Any) -> httpx.Response:
            return await client.post("/v1/group/member", json=member(*way, **more), headers=holder(token))

        begun = asyncio.ensure_future(send(TOKENS[1], SECRET, "one"))
        await asyncio.sleep(0.2)
        joined = await send(TOKENS[0], "a much longer completion of another caller", "two", wait_seconds=0.3)
        assert joined.status_code == 424
        ended = await send(TOKENS[1], "x", "three")
        assert (await begun).json()["reward"] == 1.0
        assert (ended.json()["reward"], ended.json()["group"]["rewards"]) == (0.0, [1.0, 0.0])
        # A name that the other caller used is no way to its reward.
        stolen = await send(TOKENS[0], SECRET, "one", wait_seconds=0.3)
        assert stolen.status_code == 424
        assert (await send(TOKENS[1], SECRET, "one")).json()["reward"] == 1.0


async def test_the_hosts_of_one_token_share_a_group() -> None:
    with judge_serving(ScriptedGenerator(scoring), settings(TOKENS[0]), tools=False) as server:

        async def send(address: str, *way: str) -> float:
            transport = httpx.AsyncHTTPTransport(local_address=address)
            async with httpx.AsyncClient(base_url=server.url, transport=transport, timeout=30) as client:
                headers = holder(TOKENS[0])
                answer = await client.post("/v1/group/member", json=member(*way), headers=headers)
            return answer.json()["reward"]

        rewards = await asyncio.gather(send("127.0.0.1", "xx", "one"), send("127.0.0.2", "x", "two"))
        assert rewards == [1.0, 0.0]


class Slow:
    """A model that takes its time, and notes the order in which it was asked."""

    model, encoder = "slow", None

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def generate(self, context: Context, sampling: object) -> Completion:
        self.asked.append("honest" if "honest" in context.prompt.messages[-1].content else "flood")
        await asyncio.sleep(0.05)
        return Completion(text="<score>7</score>", finish=Finish.END)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    "flood",
    [{"responses": ["x"]}, {"responses": ["x"], "criteria": [f"It is {number}." for number in range(64)]}],
)
async def test_a_question_waits_for_one_answer_and_not_for_another_caller_s_list(
    flood: dict[str, Any],
) -> None:
    """Two questions are judged at once, so that a list of 64 takes more than a second."""
    model = Slow()
    with judge_serving(model, settings(*TOKENS), tools=False, concurrency=2) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            count = 1 if "criteria" in flood else 64
            questions = [{"prompt": f"Write {number}.", **flood} for number in range(count)]
            flooding = asyncio.ensure_future(
                client.post("/v1/judge", content=json.dumps(questions), headers=sent(TOKENS[0]))
            )
            await until(lambda: len(model.asked) >= 4)
            body = json.dumps({"prompt": "honest", "responses": ["y"]})
            answer = await client.post("/v1/judge", content=body, headers=sent(TOKENS[1]))
            assert answer.status_code == 200
            assert not flooding.done()
            assert model.asked.index("honest") < 12
            flooding.cancel()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not come true")


def sent(token: str) -> dict[str, str]:
    return {**holder(token), "content-type": "application/json"}


async def test_wrong_tokens_wait_once_there_are_many_and_right_ones_do_not(served: JudgeServer) -> None:
    question = {"prompt": "Write.", "responses": ["y"]}
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
        wrong = [
            asyncio.ensure_future(client.post("/v1/judge", json=question, headers=holder("c" * 32)))
            for _ in range(60)
        ]
        await until(lambda: sum(one.done() for one in wrong) >= 10)
        began = time.monotonic()
        right = await client.post("/v1/judge", json=question, headers=holder(TOKENS[0]))
        assert right.status_code == 200
        assert not all(one.done() for one in wrong)
        refused = await asyncio.gather(*wrong)
        assert {one.status_code for one in refused} == {401}
        assert time.monotonic() - began > 0.5


def test_a_question_that_no_model_reads_is_refused_in_one_line(served: JudgeServer) -> None:
    long = "x" * 2_000_001
    for path, body, way in (
        ("/v1/judge", {"prompt": "Write.", "responses": [long]}, ["responses"]),
        ("/v1/group", {"prompt": "Write.", "completions": [long, "x"]}, ["completions"]),
    ):
        answer = served.post(path, body, headers=holder(TOKENS[0]))
        (fault,) = answer.json()["detail"]
        assert (answer.status_code, fault["loc"]) == (422, ["body", *way])
        assert "characters, at most 2000000 are accepted" in fault["msg"]
