"""Calibration: statistics compared with their definitions, with brute force and with published figures."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from random import Random
from statistics import fmean, stdev, variance
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tirjudge.judge_command import write_rows as write
from tirjudge.data.rows import Row
from tirjudge.evaluation.calibration import (
    CalibratedRow,
    CalibratedRows,
    agreements,
    aurc,
    base_rates,
    chosen_and_verified,
    curve,
    decision,
    halves,
    point,
    points,
    variances,
    with_reruns,
)
from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.people import NO_VERDICT, TIE, PeopleLabels, majority
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.statistics.proportions import wilson_interval

CLASSES = st.sampled_from([0, 1, TIE])


def row(id: str, decision: int = 0, gold: int | None = 0, confidence: float | None = 1.0, **more: Any) -> Any:
    fields: dict[str, Any] = {"people": (gold,), "votes": ()} | more
    return CalibratedRow(id=id, decision=decision, gold=gold, confidence=confidence, **fields)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_aurc_is_the_mean_over_all_orders_of_equal_confidences(given_rows: list[tuple[int, bool]]) -> None:
    areas = []
    for order in permutations(given_rows):
        if [one for one, _ in order] == sorted((one for one, _ in given_rows), reverse=True):
            wrong = [is_wrong for _, is_wrong in order]
            areas.append(fmean(Fraction(sum(wrong[:k]), k) for k in range(1, len(wrong) + 1)))
    confidence, wrong = np.array(given_rows, dtype=np.float64).T
    assert aurc(confidence, wrong) == pytest.approx(float(fmean(areas)))


def test_aurc_of_a_known_order() -> None:
    """Geifman and El-Yaniv's definition by hand: risks 0, 0, 1/3, 2/4 of the first 1, 2, 3 and 4 verdicts."""
    found = curve(
        [row("a", 0, 0, 0.9), row("b", 1, 1, 0.8), row("c", 0, 1, 0.7), row("d", 1, 0, 0.6)], seed=0
    )
    assert found.aurc == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert found.best == found.aurc  # no confidence can do better here
    assert found.random == 1 / 2
    assert [(one.threshold, one.coverage.rate, one.risk.rate) for one in found.points] == [
        (0.9, 0.25, 0.0),
        (0.8, 0.5, 0.0),
        (0.7, 0.75, 1 / 3),
        (0.6, 1.0, 0.5),
    ]
    assert found.points[2].risk.interval == wilson_interval(1, 3)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, TIE, NO_VERDICT]), st.sampled_from([0.0, 0.5, 1.0, None])),
        max_size=12,
    )
)
def test_coverage_and_risk_count_the_kept_verdicts(drawn: list[tuple[int, float | None]]) -> None:
    rows = [row(str(n), decision, 0, confidence) for n, (decision, confidence) in enumerate(drawn)]
    for found in points(rows):
        kept = [
            decision
            for decision, confidence in drawn
            if decision != NO_VERDICT and confidence is not None and confidence >= found.threshold
        ]
        assert (found.coverage.successes, found.coverage.n) == (len(kept), len(drawn))
        assert (found.risk.successes, found.risk.n) == (sum(one != 0 for one in kept), len(kept))
        assert found == point(rows, found.threshold)


def test_the_order_of_the_rows_changes_no_interval() -> None:
    draw = Random(5)
    rows = [row(str(n), int(draw.random() < 0.3), 0, draw.random()) for n in range(120)]
    assert curve(rows[::-1], seed=1) == curve(rows, seed=1)


def test_rows_of_a_cluster_are_one_row_of_the_curve() -> None:
    """A hundred rows, each ten times in a cluster, have the intervals of a hundred rows."""
    draw = Random(2)
    rows = [row(str(n), int(draw.random() < 0.3), 0, draw.randrange(3) / 2) for n in range(100)]
    repeated = [replace(one, id=f"{one.id}-{n}", cluster=one.id) for one in rows for n in range(10)]
    once, found = curve(rows, seed=1), curve(repeated, seed=1)
    assert found.aurc == pytest.approx(once.aurc, abs=0.01)
    assert found.interval == pytest.approx(once.interval, abs=0.01)
    for single, many in zip(once.points, found.points, strict=True):
        for one, other in (single.risk, many.risk), (single.coverage, many.coverage):
            assert other.interval == pytest.approx(one.interval, abs=0.015)
    assert np.isnan(curve(rows[:99], seed=1).interval).all()


def test_a_threshold_is_chosen_on_one_half_and_verified_on_the_other() -> None:
    draw = Random(5)
    rows = []
    for number in range(2000):
        confidence = draw.randrange(11) / 10
        is_wrong = draw.random() < 0.5 * (1 - confidence)
        rows.append(row(f"r{number}", 1 if is_wrong else 0, 0, confidence))
    first, second = halves(rows, seed=3)
    assert 900 < len(first) < 1100
    found = chosen_and_verified(rows, 0.2, seed=3)
    assert found.chosen is not None
    assert found.verified is not None
    fits = [
        threshold / 10
        for threshold in range(11)
        for kept in [[one for one in first if one.confidence >= threshold / 10]]
        if wilson_interval(sum(one.decision != 0 for one in kept), len(kept))[1] <= 0.2
    ]
    assert found.chosen.threshold == min(fits)
    kept = [one for one in second if one.confidence >= min(fits)]
    assert found.verified.risk.n == len(kept)
    assert found.verified.risk.rate == fmean(one.decision != 0 for one in kept)
    assert found.holds
    # A row stays in its half, whatever comes before it in the file.
    assert {one.id for one in halves(rows[::-7], seed=3)[0]} == {one.id for one in first} & {
        one.id for one in rows[::-7]
    }
    # Rows of one prompt are in one half.
    pairs = [replace(one, cluster=f"c{number // 2}") for number, one in enumerate(rows)]
    clusters = [{one.cluster for one in half} for half in halves(pairs, seed=3)]
    assert not clusters[0] & clusters[1]
    assert 450 < len(clusters[0]) < 550
    unreachable = chosen_and_verified(rows, 0.0001, seed=3)
    assert (unreachable.chosen, unreachable.verified, unreachable.holds) == (None, None, False)


@given(st.lists(st.tuples(CLASSES, CLASSES, CLASSES), min_size=2, max_size=30))
def test_kappa_and_base_rates_are_those_of_the_definition(drawn: list[tuple[int, int, int]]) -> None:
    rows = [
        row(str(n), judge, majority(people), people=tuple(people)) for n, (judge, *people) in enumerate(drawn)
    ]
    found = {(one.first, one.second): one for one in agreements(rows, ("x", "y"))}
    assert {("judge", "x"), ("judge", "y"), ("x", "y")} <= found.keys()
    n, judge, people = len(drawn), Counter(one[0] for one in drawn), Counter(one[1] for one in drawn)
    chance = sum(Fraction(judge[one] * people[one], n * n) for one in judge)
    agreed = Fraction(sum(one[0] == one[1] for one in drawn), n)
    measured = found["judge", "x"]
    assert measured.by_chance == pytest.approx(float(chance))
    assert measured.agreement.rate == pytest.approx(float(agreed))
    if chance == 1:
        assert math.isnan(measured.kappa)
    else:
        assert measured.kappa == pytest.approx(float((agreed - chance) / (1 - chance)))
    rates = {one.rater: one.shares for one in base_rates(rows, ("x", "y"))}
    assert rates["judge"].get("A", 0) == pytest.approx(judge[0] / n)
    assert sum(rates["x"].values()) == pytest.approx(1)


def test_the_interval_of_kappa_has_the_width_of_its_asymptotic_standard_error() -> None:
    """Fleiss, Cohen and Everitt 1969, equation 13, for 600 ratings of three classes."""
    draw = np.random.default_rng(1)
    one = draw.integers(3, size=600)
    other = np.where(draw.random(600) < 0.7, one, draw.integers(3, size=600))
    rows = [
        row(str(n), int(a), int(b), people=(int(b),)) for n, (a, b) in enumerate(zip(one, other, strict=True))
    ]
    (found,) = agreements(rows, ("x",))
    table = np.array([[np.mean((one == i) & (other == j)) for j in range(3)] for i in range(3)])
    rows_, columns = table.sum(axis=1), table.sum(axis=0)
    observed, expected = table.trace(), rows_ @ columns
    kappa = (observed - expected) / (1 - expected)
    diagonal = sum(table[i, i] * (1 - (rows_[i] + columns[i]) * (1 - kappa)) ** 2 for i in range(3))
    others = (1 - kappa) ** 2 * sum(
        table[i, j] * (columns[i] + rows_[j]) ** 2 for i in range(3) for j in range(3) if i != j
    )
    rest = (kappa - expected * (1 - kappa)) ** 2
    error = math.sqrt((diagonal + others - rest) / 600) / (1 - expected)
    assert found.interval[1] - found.interval[0] == pytest.approx(2 * 1.96 * error, rel=0.08)
    assert found.interval[0] < found.kappa < found.interval[1]


def test_a_missing_verdict_agrees_with_nobody() -> None:
    rows = [row("a", NO_VERDICT, 0), row("b", 1, 1), row("c", NO_VERDICT, TIE)]
    (found,) = agreements(rows, ("x",))
    assert (found.agreement.successes, found.agreement.n) == (1, 3)
    assert base_rates(rows, ("x",))[0].shares == {"B": 1 / 3, "no verdict": 2 / 3}


def votes(*bests: tuple[int, ...], orders: bool = False) -> tuple[Vote, ...]:
    return tuple(
        Vote(best=best, order=(n, 1 - n) if orders else (0, 1), sample=0 if orders else n)
        for n, best in enumerate(bests)
    )


def test_variance_over_reruns_and_over_orders() -> None:
    rows = [
        row("same", people=(0,), votes=votes((0,), (0,), (0,))),
        row("twice", people=(0,), votes=votes((0,), (1,), (0,))),
        row("mute", people=(0,), votes=votes((), (0,), ())),
    ]
    (found,) = variances(rows)
    assert found.over == "reruns"
    assert [one.rate for one in found.accuracies] == pytest.approx([2 / 3, 2 / 3, 2 / 3])
    assert (found.changed.successes, found.changed.n) == (2, 3)
    assert found.deviation == pytest.approx(stdev([2 / 3, 2 / 3, 2 / 3]))
    assert found.within_rows == pytest.approx(fmean([0, variance([1, 0, 1]), variance([0, 1, 0])]))
    assert found.expected_deviation == pytest.approx(math.sqrt(found.within_rows / 3))
    (orders,) = variances(
        [row("a", votes=votes((0,), (1,), orders=True)), row("b", votes=votes((0,), (0,), orders=True))]
    )
    assert orders.over == "orders"
    assert [one.rate for one in orders.accuracies] == [1, 0.5]
    assert (orders.changed.successes, orders.changed.n) == (1, 2)


def test_the_recorded_verdict_is_the_decision(tmp_path: Path) -> None:
    """The mean of the scores decides where responses are judged alone, not the majority of the samples."""
    scores = {0: (9, 1), 1: (4, 5), 2: (4, 5)}
    views = [
        {"view": str(n), "order": [n], "sample": sample, "stop": "verdict", "segments": []}
        | {"verdict": {"choice": None, "tie": False, "scores": {str(n): float(value)}}}
        for sample, values in scores.items()
        for n, value in enumerate(values)
    ]
    fields = {
        "id": "a",
        "label": 0,
        "domain": "",
        "tags": [],
        "stop": "verdict",
        "verdict": "A",
        "views": views,
    }
    costs = {"programs": 0, "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0}
    (judged,) = open_replay(write(tmp_path / "run.jsonl", [fields | costs]))
    assert [vote.best for vote in judged.votes] == [(0,), (1,), (1,)]
    assert decision(judged) == (0,)
    held = {"name": "margin", "value": 1.9, "below": 2.0, "verdict": "A"}
    open_row = {"verdict": None, "stop": "abstained", "confidence": held}
    (left_open,) = open_replay(write(tmp_path / "open.jsonl", [fields | costs | open_row]))
    assert decision(left_open) == (0,)


def test_reruns_are_further_samples() -> None:
    counts: Counter[str] = Counter()
    first = [JudgedRow(id="a", votes=votes((0,))), JudgedRow(id="b", votes=votes((0,)))]
    second = {("", "a"): JudgedRow(id="a", votes=votes((1,), (1,)))}
    rows = [(row, Row("run:1", "", {})) for row in first]
    merged = [row for row, _ in with_reruns(rows, [second], counts)]
    assert [(vote.sample, vote.best) for vote in merged[0].votes] == [(0, (0,)), (1, (1,)), (2, (1,))]
    assert merged[1].votes == first[1].votes
    assert counts["not in every rerun"] == 1
    counts.clear()
    list(with_reruns(rows, [second, {}], counts))
    assert counts["not in every rerun"] == 2
    # A tie that stands in place of a guess is what the judge said.
    guess = JudgedRow(id="a", votes=votes((0,)), verdict=(0, 1), is_guess=True)
    [(merged_guess, _)] = with_reruns([(guess, rows[0][1])], [{("", "a"): guess}], counts)
    assert (decision(merged_guess), [vote.best for vote in merged_guess.votes]) == ((0, 1), [(0, 1)] * 2)


@pytest.mark.parametrize(
    ("columns", "meaning", "expected"),
    [
        ([{"idx": 1, "annotator1": 1, "annotator2": "0", "annotator3": 2.0}], None, (0, TIE, 1)),
        ([{"id": 1, "annotators": ["A", "tie", None]}], None, (0, TIE, None)),
        ([{"id": 1, "annotators": {"eve": "B>A", "bob": "A=B"}}], None, (1, TIE)),
        ([{"id": 1, "annotators": {"annotator1": "B", "annotator2": "tie"}}], None, (1, TIE)),
        ([{"id": 1, "annotators": {"label": "B"}}], None, (1,)),
        ([{"id": 1, "label": "left"}], {"left": "A", "right": "B"}, (0,)),
        ([{"label": 1}], None, (1,)),
    ],
)
def test_labels_of_people_are_read(
    columns: list[dict[str, Any]],
    meaning: dict[str, str] | None,
    expected: tuple[int | None, ...],
    tmp_path: Path,
) -> None:
    labels = PeopleLabels(write(tmp_path / "labels.jsonl", columns), meaning)
    keys: list[dict[str, Any]] = [{}, {}] if len(columns[0]) == 1 else [{"id": "1"}, {"id": 2}]
    first, second = (Row(f"run:{n}", f"line-{n}", one) for n, one in enumerate(keys, 1))
    assert labels.classes(first, 2, 0) == expected
    assert labels.classes(second, 2, 1) is None
    assert len(labels.annotators) == len(expected)


def numbered(values: list[Any], column: str) -> list[dict[str, Any]]:
    return [{"id": n, column: value} for n, value in enumerate(values)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"id": 1, "score": 3}], ":1: no labels of people: a column annotator1, annotators or label"),
        ([{"id": 1, "label": "A"}] * 2, ":2: two rows have the key '1' (the other: {0}:1)"),
        (
            numbered([0, 1] * 20, "annotator1"),
            ": its labels are 0 or 1 and never 2, while annotators' numbers",
        ),
        (numbered([1, 2] * 20, "label"), ": its labels are never 0, so that they may not be indices from 0"),
        (
            numbered(["A", "A"], "label"),
            ": every label is A, so that a judge that agrees cannot be told from",
        ),
        (numbered(["yes", "A"], "label"), ':1: a label is "yes", which is no letter from A to B'),
        (
            [{"id": 7, "label": "A"}, {"id": 8, "label": "B"}],
            "no row of the run is labelled in {0}: rows are joined",
        ),
        (
            [{"id": 0, "annotators": ["A"]}, {"id": 1, "annotators": "B"}],
            ':2: annotators is "B", and the first row',
        ),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    rows: list[dict[str, Any]], reason: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "labels.jsonl", rows)
    run = [(JudgedRow(id=str(n), votes=votes((0,))), Row(f"run:{n}", "", {"id": n})) for n in range(2)]
    # A reason that begins with a colon begins with the file's name in the message.
    line = re.escape((f"{path}{reason}" if reason.startswith(":") else reason).format(path))
    with pytest.raises(ValueError, match=rf"\A{line}[^\n]*\Z"):
        CalibratedRows.of(run, PeopleLabels(path), "vote-share")
