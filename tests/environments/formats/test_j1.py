"""J1: answers and hand-computed rewards of verdicts in both orders, scores and optional terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tirjudge_environments import Episode, Malformed, Reward, Score, StopReason, Verdict, View
from tirjudge_environments.formats.j1 import J1, J1PaS, J1PaV, J1PaVS, J1PoS

AB, BA = View("AB", (0, 1)), View("BA", (1, 0))
A, B = "<think>t</think> <answer> [[A]] </answer>", "<think>t</think> <answer> [[B]] </answer>"
PLANNED = "<plan>p</plan>\n<execution>e</execution>\n"


def scored(first: object, second: object) -> str:
    return f"<think>t</think><score_A> {first} </score_A> <score_B> {second} </score_B>"


def alone(score: object) -> str:
    return f"<think>t</think><score> {score} </score>"


@pytest.fixture
def rewards(make_task, play) -> Callable[..., list[float | str]]:
    async def rewards(judge: J1, *texts: str, down: Sequence[int] = (), **task) -> list[float | str]:
        """Return the rewards of one text per view; the label is response 0."""
        judged = make_task(**task)
        played = [await play(judge, judged, [text], view=view) for view, text in enumerate(texts)]
        for view in down:
            played[view] = replace(played[view], stop=StopReason.GENERATOR_DOWN, verdict=None)
        [scores] = judge.score([Episode(judged, 0, tuple(played))], {})
        return [_told(score) for score in scores]

    return rewards


def _told(score: Score) -> float | str:
    return score.total if isinstance(score, Reward) else score.reason


@pytest.mark.parametrize(
    ("first", "second", "verdict", "consistency"),
    [  # Response 0 is A in the first order and B in the second.
        (A, B, [1.0, 1.0], [1.0, 1.0]),
        (A, A, [1.0, 0.0], [0.0, 0.0]),
        (B, B, [0.0, 1.0], [0.0, 0.0]),
        (B, A, [0.0, 0.0], [0.0, 0.0]),
        (A, "?", [1.0, 0.0], [0.0, 0.0]),
        ("?", "?", [0.0, 0.0], [0.0, 0.0]),
    ],
)
async def test_the_verdict_and_its_consistency(rewards, first, second, verdict, consistency) -> None:
    assert await rewards(J1PaV(), first, second) == verdict
    assert await rewards(J1PaV(consistency=True), first, second) == consistency


@pytest.mark.parametrize(
    ("text", "total"),
    [(A, 1.25), (A.removeprefix("<think>t</think>"), 1.0), (B, -0.25), ("?", -0.5), (f"So: {A}", 1.0)],
)
async def test_the_optional_terms(rewards, text: str, total: float) -> None:
    judge = J1PaV(order="given", negative_reward=-0.5, format_reward=0.25)
    assert await rewards(judge, text) == [total]


@pytest.mark.parametrize(
    ("first", "second", "rewarded"),
    [
        (alone(7), alone("6.9"), [1.0, 1.0]),
        (alone(7), alone("7.0"), [0.0, 0.0]),  # A tie earns no term.
        (alone(6), alone(7), [0.0, 0.0]),
        (alone(7), "?", [0.0, 0.0]),
        (alone(10), alone(0), [1.0, 1.0]),
    ],
)
async def test_two_separate_scores_are_rewarded_together(rewards, first, second, rewarded) -> None:
    assert await rewards(J1PoS(), first, second) == rewarded


async def test_the_optional_terms_of_separate_scores(rewards) -> None:
    judge = J1PoS(negative_reward=-1.0, format_reward=0.5)
    assert await rewards(judge, alone(7), "<score>6</score>") == [1.5, 1.0]
    assert await rewards(judge, alone(6), "<score>7</score>") == [-0.5, -1.0]


@pytest.mark.parametrize(
    ("first", "second", "rewarded"),
    [
        (scored(8, "3.5"), scored("3.5", 8), [1.0, 1.0]),
        (scored(8, 8), scored(3, 8), [0.0, 1.0]),
        (scored(3, 8), "?", [0.0, 0.0]),
    ],
)
async def test_the_reward_of_scores_given_together(rewards, first: str, second: str, rewarded) -> None:
    assert await rewards(J1PaS(), first, second) == rewarded


async def test_with_scores_and_a_verdict_the_verdict_alone_counts(rewards) -> None:
    against = scored(2, 9) + "<answer>[[A]]</answer>"
    without = "<think>t</think><answer>[[B]]</answer>"
    assert await rewards(J1PaVS(), against, without) == [1.0, 1.0]


async def test_a_failure_outside_of_the_judge_has_no_reward(rewards) -> None:
    reason = "generator_down: "
    assert await rewards(J1PaV(), A, B, down=[1]) == [1.0, reason]
    assert await rewards(J1PaV(consistency=True), A, B, down=[1]) == [reason, reason]
    assert await rewards(J1PoS(), alone(7), alone(6), down=[0]) == [reason, reason]
    assert await rewards(J1PaV(), A, B, label=None) == ["the task has no label"] * 2
    single = await rewards(J1PoS(), alone(7), candidates=("only",))
    assert single == ["a single response has nothing to be compared with"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>[[B]]</answer>", 1),
        ("<think>[[A]] <answer>[[A]]</answer></think><answer>[[B]]</answer>", 1),
        ("<think>a</think><answer>[[B]]</answer> I repeat: <answer>[[B]]</answer>", 1),
        ("<think>a</think>```\n<answer> [[A]] </answer>\n```", 0),
        ("<think>a</think><answer>[[A]]</answer><answer>[[B]]</answer>", "contradict each other"),
        ("<think>a <answer>[[A]]</answer>", "the thinking was not closed"),
        ("<think>a</think>[[A]]", "no <answer> behind the thinking"),
        ("<think>a</think><answer>A</answer>", "neither [[A]] nor [[B]]"),
        ("<think>a</think><answer>[[C]]</answer>", "neither [[A]] nor [[B]]"),
        ("<think>a</think><answer>[[A]] [[B]]</answer>", "neither [[A]] nor [[B]]"),
        ("<think>a</think><answer>[[A]]", "no <answer> behind the thinking"),
    ],
)
def test_verdicts_are_read_from_the_answer(text: str, expected: int | str, make_task) -> None:
    verdict = J1PaV().verdict(make_task(), AB, text)
    if isinstance(expected, int):
        assert verdict == Verdict(choice=expected)
        assert J1PaV().verdict(make_task(), BA, text) == Verdict(choice=1 - expected)
    else:
        assert isinstance(verdict, Malformed)
        assert expected in verdict.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{PLANNED}<answer>[[B]]</answer>", 1),
        ("<plan><answer>[[A]]</answer></plan><execution><answer>[[A]]</answer></execution>", None),
        ("<plan>p</plan><execution>endless <answer>[[A]]</answer>", None),
        ("<plan>endless <answer>[[A]]</answer>", None),
    ],
)
def test_a_verdict_follows_plan_and_execution(text: str, expected: int | None, make_task) -> None:
    verdict = J1PaV(seed_prompt="plan").verdict(make_task(), AB, text)
    assert verdict == Verdict(choice=expected) if expected is not None else isinstance(verdict, Malformed)


async def test_the_form_of_the_plan_is_rewarded(rewards) -> None:
    judge = J1PaV(order="given", seed_prompt="plan", format_reward=0.5)
    assert await rewards(judge, f"{PLANNED}<answer>[[A]]</answer>") == [1.5]
    assert await rewards(judge, A) == [1.0]
    assert await rewards(judge, f"<execution>e</execution><plan>p</plan>{A}") == [1.0]


@pytest.mark.parametrize(
    ("body", "score"),
    [
        *(("0", 0.0), ("10", 10.0), ("10.0", 10.0), ("7.5", 7.5), ("7.50", 7.5), ("0.1", 0.1)),
        *((bad, None) for bad in ("10.1", "11", "-1", "7.55", "7.", ".5", "07", "8/10", "٧", "", "1e1")),
    ],
)
def test_scores_are_numbers_from_0_to_10_in_tenths(body: str, score: float | None, make_task) -> None:
    verdict = J1PoS().verdict(make_task(), View("1", (1,)), alone(body))
    if score is None:
        assert verdict == Malformed("a <score> that is no number from 0 to 10 in tenths")
    else:
        assert verdict == Verdict(scores={1: score})


def test_the_higher_of_two_scores_is_chosen(make_task) -> None:
    task = make_task()
    assert J1PaS().verdict(task, BA, scored(8, 3)) == Verdict(choice=1, scores={1: 8.0, 0: 3.0})
    assert J1PaS().verdict(task, AB, scored(4, 4)) == Verdict(scores={0: 4.0, 1: 4.0}, tie=True)
    assert isinstance(J1PaS().verdict(task, AB, "<score_A>8</score_A>"), Malformed)
    both = J1PaVS().verdict(task, AB, scored(8, 3) + "<answer>[[B]]</answer>")
    assert both == Verdict(choice=1, scores={0: 8.0, 1: 3.0})
    assert isinstance(J1PaVS().verdict(task, AB, scored(8, 3)), Malformed)
