"""Reward questions: each is asked once, cached, retried, and never answered with an invented answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tirjudge.generation.base import Generator, GeneratorFailed, Sampling
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.meta_judge import AnswerStore, MetaJudgeConfig, NotAnswered, RewardQuestions
from tirjudge.rollout import Rollout
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import JudgeTask, Message, Prompt, Question, Reward, Unscored
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.testing import fixed_sandbox

MATCHED = "<RESULT_START>\nScores for each claim:\n- R1@S1: 1.00\n<RESULT_END>"
TASK = JudgeTask(
    id="t",
    prompt=(Message("user", "Q"),),
    candidates=("good", "bad"),
    label=0,
    gold={"checklist": ("Response 2 is bad",)},
)


def ask(key: str, answer: str = "") -> Question:
    """Return a question whose only readable answer is `answer`; without it, any answer is readable."""
    prompt = Prompt(messages=(Message("user", key),))
    return Question(key, prompt, readable=lambda text: not answer or text == answer)


@pytest.fixture
async def asking(server: EndpointServer) -> AsyncIterator[Any]:
    """Return a function that opens questions to the server's model, or to a given one; all are closed."""
    made = []

    def make(model: Generator | None = None, **options: Any) -> RewardQuestions:
        model = model or OpenAIGenerator("meta", server.url, retries=0)
        made.append(RewardQuestions(model, **options))
        return made[-1]

    yield make
    for questions in made:
        await questions.close()


async def test_equal_questions_are_asked_once(server: EndpointServer, asking: Any) -> None:
    server.script = lambda body: chat(f"answer to {body['messages'][0]['content']}")
    questions = asking()
    assert await questions.answers([ask("a"), ask("b"), ask("a")]) == {"a": "answer to a", "b": "answer to b"}
    assert await questions.answers([ask("b")]) == {"b": "answer to b"}
    assert len(server.asked) == 2


async def test_a_cancelled_rollout_leaves_the_answer_to_the_others(
    server: EndpointServer, asking: Any
) -> None:
    server.script = lambda body: chat("answer")
    questions = asking()
    first, second = (asyncio.create_task(questions.answers([ask("a")])) for _ in range(2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    assert await second == {"a": "answer"}
    assert first.cancelled()
    assert len(server.asked) == 1


async def test_a_request_that_nobody_waits_for_ends_with_the_questions(
    server: EndpointServer, asking: Any
) -> None:
    server.script = lambda body: chat("answer")
    questions = asking()
    asked = asyncio.create_task(questions.answers([ask("a")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    [request] = questions._in_flight.values()
    await questions.close()
    assert request.cancelled()


async def test_answers_are_cached_and_replayed_without_a_model(
    server: EndpointServer, asking: Any, tmp_path: Path
) -> None:
    server.answers(chat("kept"))
    questions = asking(kept=AnswerStore(tmp_path))
    await questions.answers([ask("a")])
    await questions.close()
    assert list(read_lines(tmp_path / "asked.jsonl")) == [{"key": "a", "model": "meta", "answer": "kept"}]
    replayed = asking(ScriptedGenerator([], model="meta"), kept=AnswerStore(tmp_path))
    assert await replayed.answers([ask("a")]) == {"a": "kept"}
    await replayed.close()
    other = asking(ScriptedGenerator(["another model's"], model="other"), kept=AnswerStore(tmp_path))
    assert await other.answers([ask("a")]) == {"a": "another model's"}


async def test_processes_of_one_run_store_answers_side_by_side(asking: Any, tmp_path: Path) -> None:
    for rank in (0, 1):
        questions = asking(ScriptedGenerator([f"by {rank}"]), kept=AnswerStore(tmp_path, rank))
        await questions.answers([ask(f"of {rank}")])
        await questions.close()
    nobody = asking(ScriptedGenerator([]), kept=AnswerStore(tmp_path, 1))
    assert await nobody.answers([ask("of 0"), ask("of 1")]) == {"of 0": "by 0", "of 1": "by 1"}


async def test_an_unreadable_answer_is_retried_with_another_seed_and_temperature(
    server: EndpointServer, asking: Any
) -> None:
    server.answers(chat("hm"), chat("yes"))
    questions = asking(sampling=Sampling(temperature=0.0))
    assert await questions.answers([ask("a", "yes")]) == {"a": "yes"}
    first, second = server.bodies
    assert first["temperature"] == 0.0
    assert second["temperature"] > 0.0, "a greedy retry would give the same answer"
    assert first["seed"] != second["seed"]
    server.answers(chat("hm"))
    server.asked.clear()
    assert await questions.answers([ask("b", "yes")]) == {"b": "hm"}, "the recorded answer should not change"
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (failure(503, "loading"), "503"),
        (chat("", "network_error"), "network_error"),
        (chat("So", "ponies"), "ponies"),
    ],
)
async def test_an_unreachable_model_is_retried_until_the_patience_ends(
    server: EndpointServer, asking: Any, trouble: Any, words: str
) -> None:
    server.answers(trouble, trouble, chat("yes"))
    said: list[str] = []
    assert await asking(pause=0.01, say=said.append).answers([ask("a", "yes")]) == {"a": "yes"}
    assert len(said) == 1, "waiting should be reported once"
    assert said[0].startswith("meta does not answer, retrying for up to 600 s: ")
    assert words in said[0]
    server.answers(trouble)
    with pytest.raises(NotAnswered, match=rf"meta has not answered for 0 s: .*{words}"):
        await asking(patience=0.0).answers([ask("a", "yes"), ask("b", "yes")])


async def test_a_wrong_key_is_not_retried(server: EndpointServer, asking: Any) -> None:
    server.answers(failure(401, "bad key"))
    with pytest.raises(NotAnswered, match=r"meta refuses all questions: .*401.*bad key"):
        await asking().answers([ask("a")])


@pytest.mark.parametrize(
    "reply",
    [
        failure(400, "the prompt is too long: the maximum context length is 10 tokens"),
        failure(422, "this content is not allowed"),
        failure(403, "Your input was flagged by moderation"),
        chat("", finish="content_filter"),
    ],
)
async def test_a_refused_question_has_no_answer(server: EndpointServer, asking: Any, reply: Any) -> None:
    server.script = lambda body: reply if body["messages"][0]["content"] == "bad" else chat("yes")
    said: list[str] = []
    assert await asking(say=said.append).answers([ask("bad"), ask("good")]) == {"good": "yes"}
    assert [line.startswith("dropped a question that the model cannot answer: ") for line in said] == [True]


def rationale(reward_questions: RewardQuestions | None) -> Rollout:
    text = "<RESULT_START>\n- B is bad\nFinal assessment result: \\boxed{A>B}\n<RESULT_END>"
    judge = ScriptedGenerator(lambda context: text)
    return Rollout(Rationale(order="given"), judge, fixed_sandbox(), reward_questions=reward_questions)


async def test_a_rollout_asks_its_questions_before_scoring(server: EndpointServer, asking: Any) -> None:
    server.answers(chat(MATCHED))
    rollout = rationale(asking())
    group = await rollout.group(TASK, 3)
    parts = {"correct": 1.0, "rationale": 1.0, "consistency": 1.0}
    assert await rollout.score(group) == [(Reward(1.0, parts, right=True, teaches=True),)] * 3
    assert len(server.asked) == 1
    assert "R1: Response B is bad" in server.bodies[0]["messages"][0]["content"]


async def test_without_an_answer_there_is_no_reward(server: EndpointServer, asking: Any) -> None:
    server.answers(chat("I would rather not."))
    rollout = rationale(asking())
    [(score,)] = await rollout.score(await rollout.group(TASK, 1))
    assert isinstance(score, Unscored)


async def test_a_judge_with_questions_needs_a_meta_judge() -> None:
    rollout = rationale(None)
    with pytest.raises(ValueError, match="meta_judge"):
        await rollout.score(await rollout.group(TASK, 1))


async def test_a_local_model_is_loaded_at_the_first_question(tmp_path: Path) -> None:
    config = MetaJudgeConfig(model=str(tmp_path / "no-such-model"), patience=0.0)
    reward_questions = config.open()
    assert await reward_questions.answers([]) == {}
    with pytest.raises(GeneratorFailed, match="no-such-model"):
        await reward_questions.answers([ask("a")])
    await reward_questions.close()


async def test_a_meta_judge_behind_an_endpoint(
    server: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRJUDGE_API_KEY", "secret")
    server.answers(chat("yes"))
    fields = {"reasoning_effort": "low"}
    more = {"max_tokens": 77, "request_fields": fields, "patience": 0.0, "retries": 0}
    config = MetaJudgeConfig(model="meta", base_url=server.url, **more)
    reward_questions = config.open()
    assert await reward_questions.answers([ask("a")]) == {"a": "yes"}
    assert server.asked[0].headers["authorization"] == "Bearer secret"
    assert (server.bodies[0]["max_tokens"], server.bodies[0]["temperature"]) == (77, 0.0)
    assert server.bodies[0]["reasoning_effort"] == "low"
    server.answers(failure(503, "loading"))
    with pytest.raises(NotAnswered, match="meta has not answered for 0 s"):
        await reward_questions.answers([ask("b")])
    await reward_questions.close()
    with pytest.raises(ValueError, match="request_fields are sent to an endpoint: set base_url"):
        MetaJudgeConfig(model="meta", request_fields=fields).open()
    with pytest.raises(ValueError, match="sets the request field 'seed' itself"):
        MetaJudgeConfig(model="meta", request_fields={"seed": 1})
