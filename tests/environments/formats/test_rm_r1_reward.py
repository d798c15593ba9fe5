"""RM-R1's rewards (Eq. 8 and 11, and the authors' code) on hand-computed cases."""

from __future__ import annotations

import pytest

from tirjudge_environments import Episode, Finish, JudgeTask, Message
from tirjudge_environments.formats.rm_r1 import RmR1
from tirjudge_environments.types import StopReason, Unscored

TASK = JudgeTask(id="t", prompt=(Message("user", "Q"),), candidates=("one", "two"), label=0)
EVAL = "<eval><quote_A>x</quote_A><summary_B>y</summary_B></eval>"
RUBRIC = "<rubric>Wit (100%)<justify>j</justify></rubric>"
CHAT = f"<type>Chat</type>{RUBRIC}"
REASONING = "<type> Reasoning </type><solution>4</solution>"
A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"


async def reward(play, text: str, *, view: int = 0, last: Finish = Finish.END, **options: object):
    judge = RmR1(order="both", **options)
    trajectory = await play(judge, TASK, [text], view=view, last=last)
    [(score,)] = judge.score([Episode(TASK, 0, (trajectory,))], {})
    return score


@pytest.mark.parametrize(
    ("text", "view", "total"),
    [
        (A, 0, 1.0),
        (B, 0, -1.0),
        (A, 1, -1.0),
        (B, 1, 1.0),
        ("", 0, -1.0),
        ("no answer", 0, -1.0),
        (f"<think>{A}", 0, -1.0),
        (f"{A} and then much more " + "x" * 80, 0, 1.0),
    ],
)
async def test_the_label_earns_one_and_anything_else_minus_one(
    play, text: str, view: int, total: float
) -> None:
    score = await reward(play, text, view=view)
    assert (score.total, score.parts) == (total, {"correct": float(total > 0)})


async def test_a_truncated_turn_is_wrong(play) -> None:
    assert (await reward(play, "x" * 40_000, last=Finish.LENGTH)).total == -1.0


@pytest.mark.parametrize(
    ("style", "text", "correct", "form"),
    [
        ("no-rubrics", A, 1, 1),
        ("no-rubrics", f"I compare. {A}\n", 1, 1),
        ("no-rubrics", B, 0, 1),
        ("no-rubrics", f"{A} It is A.", 1, 0),
        ("no-rubrics", f"{A}{A}", 1, 0),
        ("no-rubrics", "[[A]]", 0, 0),
        ("reasoning", f"<think>{B}</think>{A}", 1, 1),
        ("reasoning", f"<think>{A}", 0, 0),
        ("no-categories", f"{RUBRIC}{EVAL}{A}", 1, 1),
        ("no-categories", f"<rubric>r</rubric>{EVAL}{A}", 1, 0),
        ("no-categories", f"<rubric>r<justify></justify></rubric>{EVAL}{A}", 1, 0),
        ("no-categories", f"{EVAL}{RUBRIC}{A}", 1, 0),
        ("no-categories", f"{RUBRIC}<eval>better</eval>{A}", 1, 0),
        ("no-categories", f"{RUBRIC}{A}", 1, 0),
        ("instruct", f"{CHAT}{EVAL}{A}", 1, 1),
        ("instruct", f"{CHAT}{EVAL}{B}", 0, 1),
        ("instruct", f"{REASONING}{EVAL}{A}", 1, 1),
        ("instruct", f"<type>Reasoning</type>{RUBRIC}{EVAL}{A}", 1, 0),
        ("instruct", f"<type>Chat</type><solution>4</solution>{EVAL}{A}", 1, 0),
        ("instruct", f"<type>Other</type><solution>4</solution>{EVAL}{A}", 1, 0),
        ("instruct", f"{CHAT}<eval><quote_A>x</quote_A></eval>{A}", 1, 0),
        ("instruct", f"{CHAT}{A}{EVAL}", 1, 0),
        ("instruct", A, 1, 0),
        ("answer-only", "A", 1, 1),
        ("answer-only", "A!", 0, 0),
    ],
)
async def test_cold_start_adds_answer_and_format(
    play, style: str, text: str, correct: float, form: float
) -> None:
    score = await reward(play, text, style=style, reward="cold-start")
    assert score.total == correct + form
    assert score.parts == {"correct": correct, "format": form}


@pytest.mark.parametrize(
    ("text", "total"),
    [
        (A, 1.0),
        (B, -1.0),
        (f"{B}{A}", -1.0),
        (f"{A}" + "x" * (80 - len(A)), 1.0),
        (f"{A}" + "x" * (81 - len(A)), -1.0),
        (f"{B}" + "x" * 80 + A, 1.0),
        ("<answer> [[A]] </answer>", -1.0),
        (f"<think>{A}", 1.0),
    ],
)
async def test_the_authors_code_looks_at_the_last_eighty_characters(play, text: str, total: float) -> None:
    assert (await reward(play, text, reward="released")).total == total


async def test_a_failure_or_a_missing_label_gives_no_score(play) -> None:
    judge = RmR1(order="given")
    trajectory = await play(judge, TASK, [A])
    unlabelled = JudgeTask(id="t", prompt=TASK.prompt, candidates=TASK.candidates)
    assert judge.score([Episode(unlabelled, 0, (trajectory,))], {}) == [(Unscored("the task has no label"),)]
    assert trajectory.stop is StopReason.VERDICT
