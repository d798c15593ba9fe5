"""Whether programs decided a judgment of several orders, samples, criteria or models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tirjudge.judging.checked import CheckedCriterion
from tirjudge.judging.combining import by_criteria, by_views, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge_environments import (
    Call,
    Criterion,
    Episode,
    JudgeTask,
    Message,
    Prompt,
    RunCode,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_sandbox import Execution, Status

CRITERIA = (Criterion(text="short"), Criterion(text="kind"))
PAIR = JudgeTask(id="pair", prompt=(Message("user", "p"),), candidates=("x", "y"), label=0)


def view(order: tuple[int, ...], choice: int | None, *, decides: bool, checked: bool = True) -> Trajectory:
    """A dialogue that names a response, after a program that favours it or without one."""
    found = "AB"[order.index(choice)] if choice is not None else ""
    again = "AB"[1 - order.index(choice)] if choice is not None else ""
    exchanged = Execution(status=Status.OK, stdout=again) if checked else None
    call = Call(RunCode("..."), Execution(status=Status.OK, stdout=found), 0, exchanged)
    return Trajectory(
        view=View("".join("AB"[one] for one in order), order),
        sample=0,
        prompt=Prompt(messages=()),
        prompt_ids=None,
        segments=(),
        calls=(call,) if decides else (),
        stop=StopReason.MALFORMED if choice is None else StopReason.VERDICT,
        verdict=None if choice is None else Verdict(choice=choice),
    )


def judged(*views: Trajectory, task: JudgeTask = PAIR) -> Judgment:
    return by_views("pairwise", Episode(task, 0, views), evidence=True)


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([view((0, 1), 0, decides=True), view((1, 0), 0, decides=True)], True),
        ([view((0, 1), 0, decides=True), view((1, 0), 0, decides=False)], False),
        # The orders disagree: the tie is nobody's verdict.
        ([view((0, 1), 0, decides=True), view((1, 0), 1, decides=True)], False),
        ([view((0, 1), None, decides=False)], False),
        ([view((0, 1), 0, decides=True, checked=False)], None),
    ],
    ids=["both", "one order guesses", "the orders disagree", "no verdict", "not checked"],
)
def test_every_order_that_carries_the_verdict_must_be_decided(
    views: list[Trajectory], expected: bool | None
) -> None:
    assert judged(*views).decided is expected


def test_nothing_is_known_of_a_judge_that_records_none() -> None:
    episode = Episode(PAIR, 0, (view((0, 1), 0, decides=True),))
    assert by_views("pairwise", episode).decided is None


def test_samples_for_another_response_do_not_carry_the_verdict() -> None:
    sure, guess = judged(view((0, 1), 0, decides=True)), judged(view((0, 1), 0, decides=False))
    against = judged(view((0, 1), 1, decides=False))
    assert self_consistency([sure, sure, against]).decided is True
    assert self_consistency([sure, guess, against]).decided is False
    # Models of a jury are combined in the same way, by their weights.
    assert self_consistency([sure, against], [2.0, 1.0]).decided is True
    assert self_consistency([sure, against], [1.0, 2.0]).decided is False
    assert self_consistency([sure, against]).decided is False  # a tie


def test_criteria_for_another_response_do_not_carry_the_verdict() -> None:
    task = replace(PAIR, criteria=(*CRITERIA, Criterion(text="brief")))
    sure, against = judged(view((0, 1), 0, decides=True)), judged(view((0, 1), 1, decides=False))
    guess = judged(view((0, 1), 0, decides=False))
    assert by_criteria(task, [sure, sure, against]).decided is True
    assert by_criteria(task, [sure, guess, against]).decided is False


def alone(score: float | None, *, decides: bool = True) -> Judgment:
    """A judgment of a single response, whose program prints something else for an empty one."""
    one = view((0, 1), 0, decides=decides)
    one = replace(one, view=View("0", (0,)), verdict=None if score is None else Verdict(scores={0: score}))
    stop = StopReason.MALFORMED if score is None else StopReason.VERDICT
    task = replace(PAIR, candidates=("x",), label=None)
    return by_views("pointwise", Episode(task, 0, (replace(one, stop=stop),)), evidence=True)


def test_a_sample_without_a_verdict_carries_none() -> None:
    assert self_consistency([alone(7.0), alone(None), alone(6.0)]).decided is True
    assert self_consistency([alone(7.0), alone(None), alone(6.0, decides=False)]).decided is False
    assert self_consistency([alone(None), alone(None)]).decided is False


@pytest.mark.parametrize("together", [True, False])
def test_checkers_decide_no_row_that_has_no_verdict(together: bool) -> None:
    task = replace(PAIR if together else alone(None).episode.task, criteria=CRITERIA)
    part = judged(view((0, 1), None, decides=False)) if together else alone(None)
    one = replace(part.trajectories[0], verdict=Verdict(scores={0: 1.0, 1: 1.0} if together else {0: 1.0}))
    row = by_criteria(task, [part], checked={0: CheckedCriterion("words", (one,))})
    assert (row.verdict, row.stop, row.decided) == (None, StopReason.MALFORMED, False)


def test_only_undecided_comparisons_become_ties() -> None:
    sure, guess = judged(view((0, 1), 0, decides=True)), judged(view((0, 1), 0, decides=False))
    assert sure.tied_without_evidence() == sure
    tied = guess.tied_without_evidence()
    assert (tied.verdict, tied.guess, tied.credit) == ("tie", (0,), 0.5)
    none = judged(view((0, 1), None, decides=False))
    assert none.tied_without_evidence() == none
    unknown = judged(view((0, 1), 0, decides=True, checked=False))
    assert unknown.tied_without_evidence() == unknown
    single = replace(PAIR, candidates=("x",), label=None)
    scored = by_views(
        "pointwise",
        Episode(single, 0, (replace(view((0, 1), 0, decides=False), view=View("A", (0,))),)),
        evidence=True,
    )
    assert scored.decided is False
    assert scored.tied_without_evidence() == scored
