"""`tirjudge.testing`: an answer that keeps its rule passes, another fails with the program and its output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tirjudge import testing
from tirjudge.generation.base import GeneratorFailed
from tirjudge.testing import assert_judged

RULE = "Your answer must have at least 3 words."
PROGRAM = "print(len(response.split()) >= 3)"
HOSTILE = "one\x1b[2J\u202e"


def counting(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that counts the words, and scores 9 for three words and 2 for fewer."""
    said = [one["content"] for one in body["messages"]]
    if not any(PROGRAM in one for one in said):
        return chat(f"I count.\n```python\n{PROGRAM}\n```\n")
    return chat(f"So <score>{9 if 'True' in said[-1] else 2}</score>")


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(testing, "_judges", {})
    with serving() as server:
        server.script = counting
        yield server
        for one, _ in testing._judges.values():
            one.close()


def options(server: EndpointServer, **more: Any) -> dict[str, Any]:
    judge = {"model": "any", "base_url": server.url, "untrained": "tir"}
    return {**judge, "backend_options": {"preload": []}, **more}


def test_a_failing_answer_shows_the_program_and_its_output_also_from_the_store(judge: EndpointServer) -> None:
    row = assert_judged("Greet.", "a b c", rule=RULE, **options(judge))
    assert row.criteria[0].satisfied == [1.0]
    for _ in range(2):
        with pytest.raises(AssertionError) as failed:
            assert_judged("Greet.", HOSTILE, rule=RULE, **options(judge))
        message = str(failed.value)
        assert f"the answer does not pass: {RULE}" in message
        assert f"program 1: ok\n    {PROGRAM}\noutput\n" in message
        assert "    False" in message
        assert "one\\x1b[2J\\u202e" in message
        assert "\x1b" not in message
    # Two questions, of two turns each: the second failure came from the store.
    assert len(judge.asked) == 4
    assert len(list(Path(".tirjudge/verdicts").iterdir())) == 2


def test_another_rule_answer_or_judge_is_another_verdict(judge: EndpointServer) -> None:
    assert_judged("Greet.", "a b c", rule=RULE, **options(judge))
    assert_judged("Greet.", "a b c", rule="Another rule.", **options(judge))
    assert_judged("Greet.", "x y z", rule=RULE, **options(judge))
    assert_judged("Greet.", "a b c", rule=RULE, **options(judge, temperature=0.5))
    assert len(judge.asked) == 8
    assert_judged("Greet.", "a b c", rule=RULE, verdicts=None, **options(judge))
    assert len(judge.asked) == 10


def test_a_reference_needs_a_score_that_passes(judge: EndpointServer) -> None:
    assert_judged("Count.", "a b c", reference="three", **options(judge))
    with pytest.raises(AssertionError, match="does not pass: agrees with the reference"):
        assert_judged("Count.", "a", reference="three", **options(judge))


def test_what_says_nothing_about_the_answer_is_no_failed_assertion(judge: EndpointServer) -> None:
    with pytest.raises(ValueError, match="needs a rule or a reference"):
        assert_judged("Greet.", "a", **options(judge))
    down = options(judge, retries=0) | {"base_url": "http://127.0.0.1:9/v1"}
    with pytest.raises(GeneratorFailed):
        assert_judged("Greet.", "a", rule=RULE, **down)
    judge.script = lambda body: chat("I cannot say.")
    with pytest.raises(AssertionError, match="no verdict"):
        assert_judged("Greet.", "b", rule=RULE, **options(judge, tools=False))


@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("print(len(response))", 9),
        ("print(response < 'b')\nprint('no')", 9),
        ("print('pass' if len(response) > 1 else 'fail')", 2),
        ("print(len(response.split()) // 2, 'of 3')", 9),
        ("print(1)", 9),
        ("1 / 0", 9),
        ("", 9),
    ],
    ids=[
        "a length",
        "another last line",
        "against the score",
        "less is kept",
        "the same",
        "an error",
        "none",
    ],
)
def test_a_guess_passes_only_if_the_caller_allows_it(judge: EndpointServer, program: str, score: int) -> None:
    def guessing(body: dict[str, Any]) -> dict[str, Any]:
        ran = not program or any(program in one["content"] for one in body["messages"])
        return chat(f"So <score>{score}</score>" if ran else f"```python\n{program}\n```\n")

    judge.script = guessing
    for asked in ({"rule": RULE}, {"reference": "391"}):
        with pytest.raises(AssertionError, match=r"^undecided: the judge only guessed: "):
            assert_judged("Count.", "a b c", **asked, **options(judge))
        if score == 9:
            assert_judged("Count.", "a b c", **asked, allow_undecided=True, **options(judge))
    # Nothing is known of a judge without programs.
    judge.script = lambda body: chat("So <score>9</score>")
    assert_judged("Count.", "a b c", rule=RULE, **options(judge, tools=False))


@pytest.mark.slow
def test_the_embedded_judge_passes_no_answer_that_it_only_guesses() -> None:
    for answer in ("392", "no idea"):
        with pytest.raises(
            AssertionError, match=r"^undecided: the judge only guessed: agrees with the reference"
        ):
            assert_judged("What is 17 * 23?", answer, reference="391", verdicts=None)
    assert_judged("Greet.", "a b c", rule=RULE, verdicts=None)
