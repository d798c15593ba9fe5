"""The base of the text-only judges: one turn read at its end, continued until the token budget ends."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tirjudge_environments import Budget, Finish, JudgeTask, Malformed, StopReason, Verdict, View
from tirjudge_environments.formats.text_only import TextPair, Wording, written
from tirjudge_environments.turn_reader import behind_thinking, elements
from tirjudge_environments.types import Score, Unscored


class FirstWord(TextPair):
    """A pairwise judge whose answer is the first word after `<think>`."""

    wording: ClassVar = Wording("tir-pairwise-no-tools", "mini-pairwise-no-tools", "<think>")

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        answer = behind_thinking(text)
        if answer is None or answer.strip() not in ("A", "B"):
            return Malformed("neither A nor B")
        return Verdict(choice=view.order["AB".index(answer.strip())], parsed={"thought": len(text)})

    def score(self, group, answers) -> list[tuple[Score, ...]]:
        return [tuple(Unscored("no reward") for _ in episode.trajectories) for episode in group]


async def test_the_reader_sees_the_prefill(make_task, play) -> None:
    ended = await play(FirstWord(order="both"), make_task(), ["I weigh. </think> A"], view=1)
    assert ended.stop is StopReason.VERDICT
    assert ended.verdict.choice == 1
    assert written(ended) == "<think>I weigh. </think> A"


async def test_a_truncated_turn_continues_until_the_budget_ends_it(make_task, play) -> None:
    judge, task = FirstWord(), make_task()
    ended = await play(judge, task, ["I weigh"], last=Finish.LENGTH, budget=Budget(tokens=1))
    assert ended.stop is StopReason.TOKEN_BUDGET
    done = await play(judge, task, ["I weigh</think>B"], last=Finish.LENGTH, budget=Budget(tokens=1))
    assert done.stop is StopReason.VERDICT


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("<a> 1 </a><a>2</a>", ["1", "2"]),
        ("<a><a>inner</a></a>", ["inner"]),
        ("</a><a>open", []),
        ("<a>\n\n</a>", [""]),
        ("<A>1</A> < a>2</a> <a >3</a>", []),
    ],
)
def test_elements_are_the_innermost_closed_ones(text: str, bodies: list[str]) -> None:
    assert [element.body for element in elements(text, "a")] == bodies
    for element in elements(text, "a"):
        assert text[element.start : element.end] == f"<a>{text[element.start + 3 : element.end - 4]}</a>"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("no thought", "no thought"),
        ("<think>t</think> A", " A"),
        ("t</think>A", "A"),
        ("<think>a</think>b</think>c", "c"),
        ("<think>endless", None),
        ("<think>a</think>b<think>again", None),
        ("", ""),
    ],
)
def test_an_answer_follows_the_thinking(text: str, answer: str | None) -> None:
    assert behind_thinking(text) == answer
