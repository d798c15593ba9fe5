"""Ratings on a scale by a judge without programs: what is read, and what is rewarded."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tirjudge_environments import Completion, Episode, Finish, JudgeTask, Malformed, Message, Verdict
from tirjudge_environments.formats.text_only import TextScore, Wording
from tirjudge_environments.session import JudgeSession
from tirjudge_environments.testing import check_environment, fixed_sandbox

PAIR = JudgeTask(id="pair", prompt=(Message("user", "Hi"),), candidates=("good", "bad"), label=0)


class FivePoints(TextScore):
    """A rating from 1 to 5, under a prompt of J1."""

    scale: ClassVar[tuple[int, int]] = (1, 5)

    @property
    def wording(self) -> Wording:
        return Wording("j1-pos")


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("<score>5</score>", 5.0),
        ("<think>at least 4</think> <score> 1 </score>", 1.0),
        ("<score>2</score> so <score>2</score>", 2.0),
        ("<score>2</score> or <score>3</score>", None),
        ("<score>6</score>", None),
        ("<score>0</score>", None),
        ("<score>4.5</score>", None),
        ("<think><score>4</score>", None),
        ("good", None),
    ],
)
def test_a_whole_number_of_the_scale_is_read(text: str, rating: float | None) -> None:
    judge = FivePoints()
    view = judge.views(PAIR)[1]
    reading = judge.read(PAIR, view, Completion(text=text, finish=Finish.END))
    assert reading == Verdict(scores={1: rating}) if rating else isinstance(reading, Malformed)


@pytest.mark.parametrize(("ratings", "reward"), [((4, 2), 1.0), ((2, 4), 0.0), ((3, 3), 0.0)])
async def test_both_views_are_rewarded_if_the_labelled_response_is_rated_higher(
    ratings: tuple[int, int], reward: float
) -> None:
    judge, trajectories = FivePoints(), []
    for view, rating in zip(judge.views(PAIR), ratings, strict=True):
        session = JudgeSession(judge, PAIR, view, fixed_sandbox())
        await session.step(Completion(text=f"<score>{rating}</score>", finish=Finish.END))
        trajectories.append(session.trajectory)
    [scores] = judge.score([Episode(PAIR, 0, tuple(trajectories))], {})
    assert [score.total for score in scores] == [reward, reward]


async def test_the_format_is_an_environment() -> None:
    await check_environment(FivePoints(), PAIR)
