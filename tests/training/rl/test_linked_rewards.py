"""Rewards that link the views of a sample, and a baseline per view, against values computed by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    Finish,
    J1PaV,
    J1PoS,
    JudgeSession,
    JudgeTask,
    Message,
    TirPointwise,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_training.rl.advantages import advantages
from tirjudge_training.rl.dynamic_sampling import FormattedTask, Group, ScoredRollouts

TASK = JudgeTask(id="t", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)
A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"
ORDERS = [(A, B), (A, A), (B, B), (B, A)]
"""Four samples in both orders; response 0 is A in the first order and B in the second.

Two are right in AB (the first and the second), two in BA (the first and the third), and one in both.
"""
HALF = [0.8660254, 0.8660254, -0.8660254, -0.8660254]
ALTERNATE = [0.8660254, -0.8660254, 0.8660254, -0.8660254]
FIRST = [1.5, -0.5, -0.5, -0.5]
SCORES = [(7, 6), (6, 6), (9, 1), (6, 7)]


def groups(environment: Environment, samples: Sequence[tuple[str, str]]) -> list[Group]:
    """Return one group per view, from the judge's text in each view of each sample."""
    episodes = tuple(asyncio.run(played(environment, number, texts)) for number, texts in enumerate(samples))
    scores = environment.score(episodes, {})
    return ScoredRollouts(FormattedTask("judge", TASK), episodes, tuple(scores), 0).groups


async def played(environment: Environment, sample: int, texts: tuple[str, str]) -> Episode:
    trajectories = []
    for view, text in zip(environment.views(TASK), texts, strict=True):
        session = JudgeSession(environment, TASK, view, fixed_sandbox(), sample=sample)
        await session.step(Completion(text=text, finish=Finish.END))
        trajectories.append(session.trajectory)
    return Episode(TASK, sample, tuple(trajectories))


@pytest.mark.parametrize(
    ("consistency", "rewards", "expected"),
    [
        (False, [[1, 1, 0, 0], [1, 0, 1, 0]], [HALF, ALTERNATE]),
        (True, [[1, 0, 0, 0], [1, 0, 0, 0]], [FIRST, FIRST]),
    ],
)
def test_consistency_depends_on_both_orders_and_each_has_its_baseline(consistency, rewards, expected) -> None:
    views = groups(J1PaV(consistency=consistency), ORDERS)
    assert [group.view.name for group in views] == ["AB", "BA"]
    assert [group.rewards for group in views] == rewards
    for group, by_hand in zip(views, expected, strict=True):
        assert advantages(group.rewards) == pytest.approx(by_hand)


@pytest.mark.parametrize("environment", [J1PoS(), TirPointwise(tools=False)])
def test_scores_from_separate_views_are_rewarded_together(environment: Environment) -> None:
    samples = [(f"<score>{first}</score>", f"<score>{second}</score>") for first, second in SCORES]
    for group in groups(environment, samples):
        assert group.rewards == [1, 0, 1, 0]
        assert advantages(group.rewards) == pytest.approx(ALTERNATE)
