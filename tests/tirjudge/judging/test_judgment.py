"""Judgments that combine several views of one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.trajectories import bare_trajectory
from tirjudge.judging.combining import by_views, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge_environments import Episode, JudgeTask, Message, StopReason, Trajectory, Verdict, View

End = Verdict | StopReason


def judged(*ends: End, candidates: int = 2, label: int | None = 0) -> Judgment:
    """Return a judgment of views that ended with these verdicts or stop reasons."""
    task = JudgeTask(
        id="t", prompt=(Message("user", "p"),), candidates=tuple("xyz"[:candidates]), label=label
    )
    trajectories = tuple(_trajectory(f"v{number}", end) for number, end in enumerate(ends))
    return by_views("pairwise", Episode(task, 0, trajectories))


def alone(*scores: float | None) -> Judgment:
    """Return a sample in which each response was scored alone; None is a view without a score."""
    task = JudgeTask(id="t", prompt=(Message("user", "p"),), candidates=("x", "y"), label=0)
    ends = [StopReason.MALFORMED if s is None else Verdict(scores={n: s}) for n, s in enumerate(scores)]
    views = [replace(_trajectory(f"{n}", end), view=View(f"{n}", (n,))) for n, end in enumerate(ends)]
    return by_views("pointwise", Episode(task, 0, tuple(views)))


def _trajectory(name: str, end: End) -> Trajectory:
    view = View(name, (0, 1))
    if isinstance(end, Verdict):
        return bare_trajectory(view=view, verdict=end)
    return bare_trajectory(view=view, stop=end, verdict=None, detail=f"why {end}")


@pytest.mark.parametrize(
    ("ends", "verdict", "credit"),
    [
        ((Verdict(choice=0),), "A", 1.0),
        ((Verdict(choice=1),), "B", 0.0),
        ((Verdict(choice=0), Verdict(choice=0)), "A", 1.0),
        ((Verdict(choice=0), Verdict(choice=1)), "tie", 0.5),
        ((Verdict(scores={0: 4.0}), Verdict(scores={1: 3.5})), "A", 1.0),
        ((Verdict(scores={0: 4.0}), Verdict(scores={1: 4.0})), "tie", 0.5),
        ((Verdict(choice=0), StopReason.MALFORMED), None, 0.0),
        ((StopReason.TOKEN_BUDGET,), None, 0.0),
    ],
)
def test_views_agree_or_tie_or_give_no_verdict(
    ends: tuple[End, ...], verdict: str | None, credit: float
) -> None:
    assert (judged(*ends).verdict, judged(*ends).credit) == (verdict, credit)
    assert judged(*ends, label=None).credit is None


def test_a_tie_without_the_label_is_wrong() -> None:
    assert judged(Verdict(choice=1), Verdict(choice=2), candidates=3, label=0).credit == 0.0


def test_scores_count_although_another_view_gave_none() -> None:
    result = judged(Verdict(scores={0: 8.0}), StopReason.MALFORMED, Verdict(scores={2: 3.0}), candidates=3)
    assert result.verdict is None
    assert result.row().scores == [8.0, None, 3.0]
    assert (result.stop, result.detail) == (StopReason.MALFORMED, "why malformed")


def test_a_failed_component_takes_precedence_over_the_judges_outcome() -> None:
    result = judged(StopReason.MALFORMED, StopReason.SANDBOX_DOWN, Verdict(choice=0))
    assert (result.stop, result.stop.down) == (StopReason.SANDBOX_DOWN, True)
    assert not judged(StopReason.MALFORMED).stop.down


@pytest.mark.parametrize(
    ("scores", "ranking"), [({0: 2.0, 1: 9.0, 2: 5.0}, (1, 2, 0)), ({0: 5.0, 1: 5.0, 2: 9.0}, (2, 0, 1))]
)
def test_a_ranking_orders_all_that_have_scores(scores: Mapping[int, float], ranking: tuple[int, ...]) -> None:
    ends = [Verdict(scores={index: score}) for index, score in scores.items()]
    assert judged(*ends, candidates=3).ranking == ranking


def test_a_single_response_has_a_score_and_no_choice() -> None:
    result = judged(Verdict(scores={0: 7.0}), candidates=1, label=0)
    assert (result.score, result.choice, result.verdict, result.credit) == (7.0, None, None, None)


def test_a_tied_view_names_both() -> None:
    tie = Verdict(scores={0: 4.0, 1: 4.0}, tie=True)
    assert judged(tie).verdict == "tie"
    assert judged(Verdict(choice=0), tie).verdict == "tie"
    assert judged(Verdict(tie=True)).best == (0, 1)


def test_scores_of_several_views_are_averaged_and_a_choice_is_kept() -> None:
    result = judged(Verdict(choice=1, scores={0: 9.0, 1: 2.0}), Verdict(choice=1, scores={0: 6.0, 1: 3.0}))
    assert (result.verdict, dict(result.scores)) == ("B", {0: 7.5, 1: 2.5})


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ((Verdict(choice=0), Verdict(choice=1), Verdict(choice=1)), "B"),
        ((Verdict(choice=0), Verdict(choice=1)), "tie"),
        ((Verdict(tie=True), Verdict(choice=1), StopReason.MALFORMED), "B"),
        ((Verdict(tie=True), StopReason.MALFORMED), "tie"),
        ((StopReason.MALFORMED, StopReason.MALFORMED), None),
        ((Verdict(choice=0), Verdict(choice=0), StopReason.GENERATOR_DOWN), None),
    ],
)
def test_the_majority_of_samples_decides(samples: tuple[End, ...], verdict: str | None) -> None:
    together = self_consistency([judged(sample) for sample in samples])
    assert together.verdict == verdict
    assert len(together.trajectories) == len(samples)
    assert together.stop.unscored == (StopReason.GENERATOR_DOWN in samples)


def test_responses_judged_alone_are_compared_by_their_mean_scores() -> None:
    """Two of three samples prefer x, and y has the higher mean."""
    together = self_consistency([alone(6, 5), alone(6, 5), alone(1, 9)])
    assert (together.verdict, together.scores) == ("B", {0: 13 / 3, 1: 19 / 3})
    assert self_consistency([alone(6, 5), alone(None, 9)]).scores == {0: 6, 1: 7}


def test_samples_that_each_lack_a_score_give_no_verdict() -> None:
    together = self_consistency([alone(6, None), alone(None, 9)])
    assert (together.verdict, together.stop) == (None, StopReason.MALFORMED)
    assert together.scores == {0: 6, 1: 9}
