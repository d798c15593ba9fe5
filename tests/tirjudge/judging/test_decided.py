"""Whether programs decided a judgment of several orders, samples, criteria or models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from tests.trajectories import bare_trajectory
from tirjudge.judging.checked import CheckedCriterion
from tirjudge.judging.combining import by_criteria, by_views, self_consistency
from tirjudge.judging.judgment import Judgment
from tirjudge_environments import (
    Call,
    Criterion,
    Episode,
    JudgeTask,
    Message,
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
    found = "ABC"[order.index(choice)] if choice is not None else ""
    again = "ABC"[(order.index(choice) - 1) % len(order)] if choice is not None else ""
    exchanged = Execution(status=Status.OK, stdout=again) if checked else None
    call = Call(RunCode("..."), Execution(status=Status.OK, stdout=found), 0, exchanged)
    return bare_trajectory(
        view=View("".join("ABC"[one] for one in order), order),
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
    said = ("pass\n", "fail\n") if score and score > 5 else ("fail\n", "pass\n")
    first, again = (Execution(status=Status.OK, stdout=text) for text in said)
    one = replace(one, calls=tuple(replace(call, outcome=first, exchanged=again) for call in one.calls))
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


@pytest.mark.parametrize(
    ("passing", "against", "expected"),
    [
        # Both satisfy the checked criterion, and two guesses cancel each other.
        ((1.0, 1.0), [(0, False), (1, False)], ("tie", False)),
        # A checker decided for A. A guess for B, or a program for B, makes the row a tie.
        ((1.0, 0.0), [(1, False)], ("tie", False)),
        ((1.0, 0.0), [(1, True)], ("tie", True)),
        ((1.0, 1.0), [], ("tie", True)),
    ],
)
def test_no_checker_decides_a_tie_that_guesses_make(
    passing: tuple[float, ...], against: list[tuple[int, bool]], expected: tuple[str, bool]
) -> None:
    """With `--undecided guess`, where a guess counts as a verdict."""
    parts = [judged(view((0, 1), choice, decides=decides)) for choice, decides in against]
    task = replace(PAIR, criteria=tuple(Criterion(text=f"c{n}") for n in range(1 + len(parts))))
    none = view((0, 1), None, decides=False)
    decisions = tuple(
        replace(none, view=View(str(n), (n,)), verdict=Verdict(scores={n: score}))
        for n, score in enumerate(passing)
    )
    row = by_criteria(task, parts, checked={0: CheckedCriterion("words", decisions)})
    assert (row.verdict, row.decided) == expected


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


LIST = replace(PAIR, candidates=("x", "y", "z"))


def part(kind: str, *, task: JudgeTask = PAIR) -> Judgment:
    """A judgment by its kind: decided, guessed or unknown for a response, an undecided tie, or missing."""
    name, _, letter = kind.partition(" ")
    order, choice = tuple(range(len(task.candidates))), "ABC".index(letter) if letter else None
    one = view(order, 0 if name == "tie" else choice, decides=name == "decided")
    if name == "tie":
        one = replace(one, verdict=Verdict(tie=True))
    return by_views("pairwise", Episode(task, 0, (one,)), evidence=name != "unknown", tie_guesses=True)


def ended(result: Judgment) -> tuple[str | None, bool | None, str | None]:
    """The verdict of a judge whose guesses are ties, whether it is decided, and the guess in its place."""
    tied = result.tied_without_evidence()
    return tied.verdict, tied.decided, "tie" if len(tied.guess) > 1 else "".join("ABC"[n] for n in tied.guess)


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([(0, True), (0, True)], ("A", True, "")),
        # No guess could break the tie of two programs.
        ([(0, True), (1, True)], ("tie", True, "")),
        # A guess is a tie, and a tie of any order is one of the row.
        ([(0, True), (0, False)], ("tie", False, "A")),
        ([(0, True), (1, False)], ("tie", False, "tie")),
        ([(0, True), (None, False)], (None, False, "")),
    ],
)
def test_what_the_verdicts_of_orders_count_as(
    views: list[tuple[int | None, bool]], expected: tuple[Any, ...]
) -> None:
    both = tuple(
        view(order, choice, decides=decides)
        for order, (choice, decides) in zip([(0, 1), (1, 0)], views, strict=True)
    )
    assert ended(by_views("pairwise", Episode(PAIR, 0, both), evidence=True, tie_guesses=True)) == expected


@pytest.mark.parametrize(
    ("samples", "weights", "expected"),
    [
        (["decided A", "decided A", "decided B"], (), ("A", True, "")),
        (["decided A", "decided B"], (), ("tie", True, "")),
        # A guess is no vote: for another response it would make a tie at most.
        (["decided A", "guess B"], (), ("A", True, "")),
        (["decided A", "guess B"], (1.0, 2.0), ("tie", False, "B")),
        (["decided A", "guess B", "guess A"], (), ("tie", False, "A")),
        (["decided A", "decided A", "guess B", "guess B"], (), ("A", True, "")),
        (["decided A", "decided B", "guess A"], (), ("tie", False, "A")),
        (["guess A", "guess A"], (), ("tie", False, "A")),
        (["decided A", "tie"], (), ("A", True, "")),
        (["decided A", "tie", "tie"], (), ("tie", False, "A")),
        (["decided A", "missing"], (), ("A", True, "")),
        (["missing", "missing"], (), (None, False, "")),
        # Verdicts of which nothing is known, as those of a judge without programs, stay.
        (["unknown A", "unknown A", "guess B"], (), ("A", None, "")),
        (["unknown B", "unknown A"], (), ("tie", None, "")),
    ],
)
def test_what_the_verdicts_of_samples_and_jurors_count_as(
    samples: list[str], weights: Sequence[float], expected: tuple[Any, ...]
) -> None:
    assert ended(self_consistency([part(one) for one in samples], weights, tie_guesses=True)) == expected


def test_guesses_of_a_list_may_be_for_any_response() -> None:
    def voted(*kinds: str) -> Any:
        return ended(self_consistency([part(one, task=LIST) for one in kinds], tie_guesses=True))

    assert voted("decided A", "decided A", "decided B", "guess C") == ("A", True, "")
    assert voted("decided A", "decided A", "decided B", "guess C", "guess C") == ("tie", False, "tie")


def criteria(*kinds: str, weights: Sequence[float] = (), must: Sequence[int] = ()) -> Judgment:
    rules = tuple(
        Criterion(text=f"c{n}", weight=weights[n] if weights else 1.0, must_have=n in must)
        for n in range(len(kinds))
    )
    parts = [alone_pair(kind) if kind.startswith("alone") else part(kind) for kind in kinds]
    return by_criteria(replace(PAIR, criteria=rules), parts, tie_guesses=True)


def alone_pair(kind: str) -> Judgment:
    """Two responses shown alone: `alone 9 2?` has the scores 9 and 2, the second of them guessed."""
    views = []
    for index, score in enumerate(kind.split()[1:]):
        one = alone(float(score.rstrip("?")), decides="?" not in score).trajectories[0]
        found = Verdict(scores={index: float(score.rstrip("?"))})
        views.append(replace(one, view=View(str(index), (index,)), verdict=found))
    return by_views("pointwise", Episode(PAIR, 0, tuple(views)), evidence=True, tie_guesses=True)


@pytest.mark.parametrize(
    ("kinds", "more", "expected", "scores"),
    [
        # A checker's work is not undone by a guess: taken the other way it makes 0.5 to 0.5.
        (["decided A", "guess B"], {}, ("A", True, ""), [0.75, 0.25]),
        (["decided A", "guess A"], {}, ("A", True, ""), [0.75, 0.25]),
        (["decided A", "tie"], {}, ("A", True, ""), [0.75, 0.25]),
        # The guess weighs more: what it could change is no score.
        (["decided A", "guess A"], {"weights": (1.0, 2.0)}, ("tie", False, "A"), None),
        (["decided A", "decided B"], {}, ("tie", True, ""), [0.5, 0.5]),
        (["decided A", "decided B", "guess A"], {}, ("tie", False, "A"), None),
        (["guess A"], {}, ("tie", False, "A"), None),
        # A must-have outweighs all, and so does a guess about it.
        (["decided A", "guess A"], {"must": (1,)}, ("tie", False, "A"), None),
        (["decided A", "guess B"], {"must": (0,)}, ("A", True, ""), [0.75, 0.0]),
        # A missing verdict is unknown: an equal aggregate may be a tie or not.
        (["decided A", "missing"], {"weights": (3.0, 1.0)}, ("A", True, ""), None),
        (["decided A", "missing"], {}, (None, False, ""), None),
        (["unknown A", "guess B"], {}, ("A", None, ""), [0.75, 0.25]),
        # Responses shown alone: only the guessed one may change.
        (["alone 9 2", "guess B"], {}, ("A", True, ""), [0.75, 0.25]),
        (["alone 9 2?"], {}, ("A", True, ""), None),
        (["alone 9? 2?"], {}, ("tie", False, "A"), None),
        (["alone 2 9?"], {"must": (0,)}, ("B", True, ""), None),
    ],
)
def test_what_the_verdicts_on_criteria_count_as(
    kinds: list[str], more: dict[str, Any], expected: tuple[Any, ...], scores: list[float] | None
) -> None:
    result = criteria(*kinds, **more)
    assert ended(result) == expected
    if scores is not None:
        assert result.all_scores == pytest.approx(scores)
    elif expected[1] is False:
        assert result.all_scores in (None, [0.0, None], [None, 0.0])


@pytest.mark.parametrize("must", [False, True])
def test_a_row_is_decided_if_and_only_if_no_guess_could_put_another_response_ahead(must: bool) -> None:
    """Compare with every way in which the guesses could be taken."""
    draw, seen = random.Random(3), {True: 0, False: 0}
    ways = [one for size in (1, 2) for one in combinations(range(2), size)]
    for _ in range(300):
        kinds = [
            draw.choice(("decided A", "decided B", "guess A", "guess B", "tie"))
            for _ in range(draw.choice((2, 3)))
        ]
        weights = [draw.choice((1.0, 2.0, 5.0)) for _ in kinds]
        musts = [n for n in range(len(kinds)) if must and draw.random() < 0.4]

        def first(bests: Sequence[tuple[int, ...]], weights: Any = weights, musts: Any = musts) -> set[int]:
            shares = [[(n in best) / len(best) for best in bests] for n in range(2)]
            totals = [
                0.0
                if any(not one[m] for m in musts)
                else sum(weight * share for weight, share in zip(weights, one, strict=True))
                for one in shares
            ]
            return {n for n in range(2) if max(totals) - totals[n] < 1e-9}

        firm = {n: (0,) if kind.endswith("A") else (1,) for n, kind in enumerate(kinds) if kind[0] == "d"}
        shown = first([firm.get(n, (0, 1)) for n in range(len(kinds))])
        others = [
            first([firm.get(n, way) for n, way in enumerate(taken)])
            for taken in product(ways, repeat=len(kinds))
        ]
        decided = all(shown <= other if len(shown) == 1 else shown == other for other in others)
        result = criteria(*kinds, weights=weights, must=musts)
        assert result.decided is decided, (kinds, weights, musts)
        if decided:
            assert set(result.best) == shown
        seen[decided] += 1
    assert min(seen.values()) > 30


@pytest.mark.parametrize(
    ("kinds", "must", "decided", "score"),
    [
        (["9", "9"], (), True, 1.0),
        (["9", "9?"], (), False, 1.0),
        (["2", "9?"], (), False, 0.5),
        # A must-have that a program found broken leaves nothing to guess.
        (["2", "9?"], (0,), True, 0.0),
        (["9", "2?"], (1,), False, 0.0),
    ],
)
def test_a_single_response_is_decided_if_no_guess_could_change_its_score(
    kinds: list[str], must: Sequence[int], decided: bool, score: float
) -> None:
    parts = [alone(float(one.rstrip("?")), decides="?" not in one) for one in kinds]
    rules = tuple(Criterion(text=f"c{n}", must_have=n in must) for n in range(len(kinds)))
    task = replace(parts[0].episode.task, criteria=rules)
    result = by_criteria(task, parts, tie_guesses=True)
    assert (result.decided, result.score) == (decided, score)


def checked_alone(*checks: tuple[str, str], scores: Sequence[float] = (10.0, 5.5)) -> Judgment:
    """Two responses shown alone, each with the function that scored it and what that printed."""
    views = []
    for index, (function, said) in enumerate(checks):
        one = view((index,), None, decides=True)
        first, again = (Execution(status=Status.OK, stdout=text) for text in (said, "0 of 2\n"))
        call = replace(one.calls[0], request=RunCode(function, is_check=True), outcome=first, exchanged=again)
        found = Verdict(scores={index: scores[index]})
        views.append(replace(one, calls=(call,), stop=StopReason.VERDICT, verdict=found))
    return by_views("pointwise", Episode(PAIR, 0, tuple(views)), evidence=True, tie_guesses=True)


@pytest.mark.parametrize(
    ("checks", "decided"),
    [
        ((("f", "2 of 2\n"), ("f", "1 of 2\n")), True),
        ((("f", "2 of 2\n"), ("g", "1 of 2\n")), False),
        # The function leaves out a check of the first response.
        ((("f", "1 of 1\n"), ("f", "1 of 2\n")), False),
    ],
)
def test_scores_of_different_checks_decide_no_comparison(
    checks: Sequence[tuple[str, str]], decided: bool
) -> None:
    judged = checked_alone(*checks)
    assert ended(judged) == (("A", True, "") if decided else ("tie", False, "A"))
    assert ended(self_consistency([judged, judged], tie_guesses=True))[1] is decided
    on_criterion = by_criteria(replace(PAIR, criteria=CRITERIA[:1]), [judged], tie_guesses=True)
    assert ended(on_criterion) == ended(judged)
    # A third response, which a guess puts last, makes no comparison of the others.
    three = replace(PAIR, candidates=("x", "y", "z"), criteria=CRITERIA[:1])
    guess = replace(view((2,), None, decides=False), verdict=Verdict(scores={2: 1.0}))
    guess = replace(guess, stop=StopReason.VERDICT)
    views = (*judged.trajectories, guess)
    with_guess = by_views("pointwise", Episode(three, 0, views), evidence=True, tie_guesses=True)
    assert by_criteria(three, [with_guess], tie_guesses=True).decided is decided
