"""The rationale judge learns from a MetaJudge behind HTTP, and training stops when the MetaJudge is down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, serving
from tests.training.rl.test_learning import PAIR, Case, learn
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.judging.meta_judge import AnswerStore, NotAnswered, RewardQuestions
from tirjudge_environments import Rationale

GOOD = "B does not answer the question"
BAD = "B is short"


def answer(reason: str, box: str) -> str:
    listed = f"List of reasons:\n- {reason}\nFinal assessment result:\n\\boxed{{{box}}}"
    return f"<RESULT_START>\n{listed}\n<RESULT_END>"


def metajudge(body: dict[str, Any]) -> dict[str, Any]:
    """A MetaJudge that finds the one human reason in a list that contains it verbatim."""
    listed = re.findall(r"^S\d+: (.*)$", body["messages"][0]["content"], re.MULTILINE)
    found = f"S{listed.index(GOOD) + 1}: 1.00" if GOOD in listed else "S0: 0"
    return chat(f"<RESULT_START>\nScores for each claim:\n- R1@{found}\n<RESULT_END>")


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving() as server:
        server.script = metajudge
        yield server


def case(server: EndpointServer, kept: Path, *, wrong: str, **options: Any) -> Case:
    def reward_questions() -> RewardQuestions:
        generator = OpenAIGenerator("meta", server.url, retries=0)
        return RewardQuestions(generator, kept=AnswerStore(kept), patience=0.0)

    return Case(
        Rationale(order="given", **options),
        replace(PAIR, gold={"checklist": (f"Response 2 {GOOD[2:]}",)}),
        {"AB": answer(GOOD, "A>B")},
        {"AB": wrong},
        {"loss": "sequence", "beta": 0.0, "epsilon": 2e-4, "epsilon_high": 2e-4},
        reward_questions,
    )


@pytest.mark.parametrize(
    ("wrong", "options"),
    [
        pytest.param(answer(GOOD, "B>A"), {}, id="the outcome gates"),
        pytest.param(answer(BAD, "A>B"), {}, id="the reason decides where the verdict is right"),
        pytest.param(answer(GOOD, "B>A"), {"reward": "outcome"}, id="outcome only"),
        pytest.param(answer(BAD, "A>B"), {"reward": "rationale"}, id="rationale only"),
    ],
)
def test_the_right_answer_becomes_likelier_and_less_likely_with_the_sign_reversed(
    server: EndpointServer, tiny_model: Path, tmp_path: Path, wrong: str, options: dict[str, Any]
) -> None:
    """The odds of the two answers are compared, in which everything that they have in common cancels out."""
    for sign in (1.0, -1.0):
        run = tmp_path / str(sign)
        run.mkdir()
        moved = learn(case(server, run, wrong=wrong, **options), tiny_model, tmp_path, sign=sign)
        right, other = moved["AB"]
        assert sign * (right - other) > 0.1
    assert bool(server.asked) == (options.get("reward") != "outcome")


def test_training_stops_with_a_message_when_the_metajudge_is_down(
    server: EndpointServer, tiny_model: Path, tmp_path: Path
) -> None:
    server.answers(failure(503, "overloaded"))
    with pytest.raises(NotAnswered, match=r"meta has not answered for 0 s: .*overloaded"):
        learn(case(server, tmp_path, wrong=answer(BAD, "B>A")), tiny_model, tmp_path, sign=1.0)
