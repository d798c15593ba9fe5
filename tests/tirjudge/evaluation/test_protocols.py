"""Protocols against their published definitions, written out a second time, on random inputs."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tirjudge.judged_pairs import AB, figures, pair, random_pairs, sampled
from tirjudge.evaluation.judged_rows import Cost, JudgedRow, Preference, Unscorable, Vote
from tirjudge.evaluation.protocols import PROTOCOLS, all_protocols, open_protocol, protocol_names
from tirjudge.evaluation.protocols.agreement import cohen_kappa, confusion, macro
from tirjudge.evaluation.scoring import score


@pytest.mark.parametrize("seed", range(5))
def test_orders_by_their_definitions(seed: int) -> None:
    rows = random_pairs(seed)
    first = [row.votes[0].best == (row.label,) for row in rows]
    second = [row.votes[1].best == (row.label,) for row in rows]
    against = [[vote.best == (1 - (row.label or 0),) for vote in row.votes] for row in rows]
    n = len(rows)
    assert figures("first-order", rows)["accuracy"] == sum(first) / n
    assert figures("second-order", rows)["accuracy"] == sum(second) / n
    assert figures("every-order", rows)["accuracy"] == (sum(first) + sum(second)) / (2 * n)
    assert figures("both-orders", rows)["accuracy"] == sum(map(min, first, second)) / n
    net = [a + b - sum(c) > 0 for a, b, c in zip(first, second, against, strict=True)]
    assert figures("net-vote", rows)["accuracy"] == sum(net) / n


def test_plan_rewardbench_counts_a_tie_as_half_and_means_the_sections() -> None:
    """Each order is scored by itself, and the mean of a split's scores enters the mean of all splits."""
    judged = {
        "safety_refusal": [((0,), (0,)), ((0, 1), (0,)), ((1,), ())],  # 1 1, 0.5 1, 0 0
        "tool_irrelevance": [((1,), (0,))],  # 0 1
    }
    rows = [
        pair(f"{domain} {number}", *votes, domain=domain)
        for domain, found in judged.items()
        for number, votes in enumerate(found)
    ]
    found = figures("plan-rewardbench", rows)
    assert found["safety_refusal"] == pytest.approx(3.5 / 6)
    assert found["tool_irrelevance"] == pytest.approx(1 / 2)
    assert found["mean of sections"] == pytest.approx((3.5 / 6 + 1 / 2) / 2)
    assert next(iter(found)) == "mean of sections"
    assert found["accuracy"] == pytest.approx(4.5 / 8)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_drawn_for_a_row_does_not_depend_on_other_rows(seed: int) -> None:
    rows = random_pairs(seed)
    units = open_protocol("one-order").units(rows)
    worth = dict(zip(units.ids, units.values[:, 0], strict=True))
    for row in rows:
        assert worth[row.id] in {float(vote.best == (row.label,)) for vote in row.votes}
        alone = open_protocol("one-order").units([row])
        assert alone.values[0, 0] == worth[row.id]
    drawn = {row.id for row in rows if worth[row.id] != (row.votes[0].best == (row.label,))}
    assert drawn, "the second order is never drawn"


def test_a_tie_of_four_is_worth_a_quarter() -> None:
    row = JudgedRow(id="a", votes=(Vote(best=(0, 1, 2, 3)),), candidates=4, label=2)
    assert figures("tir", [row])["accuracy"] == 0.25


def test_position_shares_add_up_and_lean_to_the_place_shown() -> None:
    rows = [
        pair("consistent", (0,), (0,)),
        pair("both ties", (0, 1), (0, 1)),
        pair("first twice", (0,), (1,)),
        pair("first, then a tie", (0,), (0, 1)),
        pair("second twice", (1,), (0,)),
        pair("first, then unread", (0,), ()),
    ]
    scored = score(open_protocol("position"), rows)
    shares = {name: one.value for name, one in scored.estimates.items()}
    assert shares == pytest.approx(
        {
            "consistency": 2 / 6,
            "bias toward first": 3 / 6,
            "bias toward second": 1 / 6,
            "delta bias": 2 / 6,
            "verdict flips": 4 / 6,
            "tie rate": 3 / 6,
        }
    )
    assert scored.units.counts["no verdict"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_position_as_judgelm_counts_it(seed: int) -> None:
    """A vote is 1 for the response shown first, -1 for the second, 0 for a draw; the first is negated."""
    rows = random_pairs(seed)
    same = before = after = 0
    for row in rows:
        first, second = (
            0 if vote.choice is None else 1 if vote.choice == vote.order[0] else -1 for vote in row.votes
        )
        same += -first == second
        before += -first < second
        after += -first > second
    n = len(rows)
    expected = (same / n, before / n, after / n, abs(before - after) / n)
    names = ("consistency", "bias toward first", "bias toward second", "delta bias")
    scored = figures("position", rows)
    assert tuple(scored[name] for name in names) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60))
def test_macro_means_class_by_class(answers: list[tuple[int, int]]) -> None:
    precisions, recalls, f1s = [], [], []
    for kind in {kind for both in answers for kind in both}:
        hit = sum(gold == said == kind for gold, said in answers)
        said_it = sum(said == kind for _, said in answers)
        is_it = sum(gold == kind for gold, _ in answers)
        precisions.append(hit / said_it if said_it else 0.0)
        recalls.append(hit / is_it if is_it else 0.0)
        both = precisions[-1] + recalls[-1]
        f1s.append(2 * precisions[-1] * recalls[-1] / both if both else 0.0)
    gold, said = np.array(answers, dtype=float).T
    expected = [sum(column) / len(column) for column in (precisions, recalls, f1s)]
    assert list(macro(confusion(gold, said)[0])) == pytest.approx(expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=60))
def test_kappa_from_the_confusion_of_two_raters(ratings: list[tuple[int, int]]) -> None:
    n = len(ratings)
    observed = sum(a == b for a, b in ratings) / n
    chance = sum(
        sum(a == kind for a, _ in ratings) * sum(b == kind for _, b in ratings) for kind in range(3)
    ) / (n * n)
    kappa = cohen_kappa(confusion(*np.array(ratings, dtype=float).T)[0])
    if chance == 1:
        assert math.isnan(kappa)
    else:
        assert kappa == pytest.approx((observed - chance) / (1 - chance))


def test_the_two_three_class_protocols_differ_in_their_f1() -> None:
    rows = [pair("a", (0,)), pair("b", (1,)), pair("c", (0, 1), label=None, tied=True), pair("d", ())]
    by_class = figures("three-class", rows)
    of_means = figures("three-class-f1-of-means", rows)
    precision, recall = by_class["precision"], by_class["recall"]
    assert of_means["F1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert by_class["F1"] != pytest.approx(of_means["F1"])
    assert by_class["agreement"] == 2 / 4


def test_three_classes_in_both_orders() -> None:
    """Auto-J, pairwise_eval.py: a row agrees if the label is the class of both orders, ties included."""
    rows = [
        pair("right twice", (0,), (0,), domain="Code"),
        pair("wrong twice", (1,), (1,), domain="Code"),
        pair("the first place twice", (0,), (1,), domain="Code"),
        pair("right, then a tie", (0,), (0, 1), domain="Code"),
        pair("a tie twice, with a label", (0, 1), (0, 1), domain="Exam"),
        pair("a gold tie, met twice", (0, 1), (0, 1), label=None, tied=True, domain="Exam"),
        pair("a gold tie, met once", (0, 1), (0,), label=None, tied=True, domain="Exam"),
        pair("a gold tie, unread twice", (), (), label=None, tied=True, domain="Exam"),
        pair("unread twice", (), (), domain="Exam"),
        pair("no label", (0,), (0,), label=None, domain="Exam"),
    ]
    scored = score(open_protocol("three-class-both-orders"), rows)
    found = {name: (estimate.value, estimate.n) for name, estimate in scored.estimates.items()}
    assert found == {
        "agreement": (2 / 9, 9),
        "consistency": (4 / 9, 9),
        "Code": (1 / 4, 4),
        "Exam": (1 / 5, 5),
    }
    assert scored.units.counts == {"tie": 6, "no verdict": 4, "left out: no label": 1}


def test_self_consistency_is_the_majority_of_choices() -> None:
    rows = [
        sampled("majority", (0,), (0,), (1,)),
        sampled("minority", (0,), (1,), (1,)),
        sampled("even", (0,), (1,), (0, 1)),
        sampled("unread", (), (), ()),
    ]
    assert figures("self-consistency", rows) == pytest.approx(
        {"SC@3": 1.5 / 4, "mean of single samples": (2 / 3 + 1 / 3 + 1 / 3) / 4}
    )


def test_mean_score_averages_before_it_compares() -> None:
    rows = [
        sampled("right", (1,), (0,), scores=({0: 4, 1: 5}, {0: 9, 1: 3})),
        sampled("tie", (1,), (0,), scores=({0: 4, 1: 5}, {0: 5, 1: 4})),
        sampled("one score each", (), (), scores=({0: 4}, {1: 3})),
        sampled("no score", (), (), scores=({0: 4}, {})),
    ]
    scored = score(open_protocol("mean-score"), rows, resamples=5)
    assert {name: one.value for name, one in scored.estimates.items()} == {
        "mean-score@2": 2 / 4,
        "tie rate": 1 / 4,
    }
    assert scored.units.counts == {"tie": 1, "no verdict": 1}


def test_errors_and_cost_are_sums_over_the_run() -> None:
    rows = [
        pair("a", (0,), programs=("ok", "syntax"), cost=Cost(completion_tokens=30, seconds=2.0, calls=2)),
        pair("b", (1,), programs=("runtime", "limit", "refused"), cost=Cost(completion_tokens=50, calls=2)),
        JudgedRow(
            id="c",
            votes=(Vote(best=(), order=AB, stop="malformed"),),
            cost=Cost(completion_tokens=20, prompt_tokens=10),
        ),
    ]
    errors = figures("errors", rows)
    assert errors == {
        "syntax errors": 1 / 4,
        "runtime errors": 1 / 4,
        "stopped at a limit": 1 / 4,
        "refused programs": 1 / 5,
        "format errors": 1 / 3,
    }
    cost = figures("cost", rows)
    assert (cost["completion tokens"], cost["prompt tokens"], cost["programs"]) == (50, 5, 2)


@pytest.mark.parametrize("seed", range(3))
def test_win_rate_and_its_standard_error(seed: int) -> None:
    draw = random.Random(seed)
    preferences = [draw.choice((1.0, 2.0, 1.5, draw.uniform(1, 2))) for _ in range(50)]
    rows = [
        JudgedRow(id=str(number), votes=(), preference=Preference(one))
        for number, one in enumerate(preferences)
    ]
    wins = [one - 1 for one in preferences]
    mean = sum(wins) / 50
    deviation = math.sqrt(sum((win - mean) ** 2 for win in wins) / 49)
    scored = figures("win-rate", rows)
    assert scored["win rate"] == pytest.approx(mean)
    assert scored["standard error"] == pytest.approx(deviation / math.sqrt(50))
    discrete = (sum(win > 0.5 for win in wins) + sum(win == 0.5 for win in wins) / 2) / 50
    assert scored["discrete win rate"] == pytest.approx(discrete)


def test_a_bootstrap_interval_is_that_of_the_normal_approximation() -> None:
    draw = random.Random(3)
    rows = [
        JudgedRow(id=str(number), votes=(), preference=Preference(draw.uniform(1, 2)))
        for number in range(400)
    ]
    estimate = score(open_protocol("win-rate"), rows).estimates["win rate"]
    half = 1.96 * figures("win-rate", rows)["standard error"]
    assert estimate.low == pytest.approx(estimate.value - half, abs=0.1 * half)
    assert estimate.high == pytest.approx(estimate.value + half, abs=0.1 * half)


def test_gold_ties_and_unlabelled_rows_are_left_out_and_counted() -> None:
    rows = [pair("a", (0,)), pair("b", (0,), label=None), pair("c", (0,), label=None, tied=True)]
    scored = score(open_protocol("tir"), rows)
    assert list(scored.units.ids) == ["a"]
    assert scored.units.counts == {"left out: no label": 1, "left out: a gold tie": 1}


@pytest.mark.parametrize(
    ("protocol", "rows", "reason"),
    [
        ("both-orders", [pair("a", (0,))], "reversed order"),
        (
            "position",
            [JudgedRow(id="a", votes=(Vote(best=(0,)),), label=0)],
            "judged one by one, so there is no order",
        ),
        ("tir", [pair("a", (0,), label=None)], "no row can be scored: left out: no label"),
        ("tir", [pair("a", (0,)), pair("a", (0,))], "two rows have the id 'a'"),
        ("three-class", [JudgedRow(id="a", votes=(Vote(best=(0,)),), candidates=3, label=0)], "3 responses"),
        ("rewardbench", [pair("a", (0,), domain="chat")], "is not a subset of RewardBench"),
        ("rm-bench", [pair("a", (0,))], "is neither an RM-Bench pair"),
        ("rm-bench", [pair("a", (0,), tags=("cell=33",))], "cell=33 is not one of 00, 01"),
        ("rmb", [pair("a", (0,))], "is not one of Pairwise Helpfulness"),
        ("self-consistency", [JudgedRow(id="a", votes=(), label=0)], "row 'a' was not judged"),
        ("mean-score", [JudgedRow(id="a", votes=(), label=0)], "row 'a' was not judged"),
        ("tir", [JudgedRow(id="a", votes=(), label=0)], "row 'a' was not judged"),
        ("kappa", [pair("a", (0,), annotations=(0, 1)), pair("b", (0,))], "2 raters, the rows before it 4"),
        ("cost", [pair("a", (0,))], "has no record of its cost"),
        (
            "mean-score",
            [sampled("a", (0,))],
            "has a verdict without scores: this protocol needs a judge that scores",
        ),
        ("win-rate", [pair("a", (0,))], "alpaca_eval"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_line(
    protocol: str, rows: list[JudgedRow], reason: str
) -> None:
    with pytest.raises(Unscorable, match=reason):
        score(open_protocol(protocol), rows, resamples=2)


def test_every_protocol_describes_its_credit_of_ties_and_failures() -> None:
    for name, protocol in zip(PROTOCOLS.names(), all_protocols(), strict=True):
        card = protocol.card
        assert card.name == name
        assert all((card.about, card.ties, card.failures))
    assert all(one != other for one, other in combinations(protocol_names(), 2))
