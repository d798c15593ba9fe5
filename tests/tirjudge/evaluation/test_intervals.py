"""Intervals whose unit is the row, against bootstraps of the row values written in numpy; and every n."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from tests.rows import every
from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_pairs import pair, random_pairs, sampled
from tirjudge.evaluation.judged_rows import Cost, JudgedRow, MatchedReasons, Preference, ScoringProtocol, Vote
from tirjudge.evaluation.protocols import all_protocols, open_protocol
from tirjudge.evaluation.scoring import Estimate, score
from tirjudge.judging.tally import Tally
from tirjudge.selection.best_of_n import Picked, SolvedTally
from tirjudge.selection.grading import CandidateSet, Grade
from tirjudge_environments import JudgeTask, Message

RIGHT, WRONG, TIE = (0,), (1,), (0, 1)


def bootstrapped(values: list[float], draws: int = 20_000) -> tuple[float, float]:
    """Percentile interval of the mean of independent values."""
    generator = np.random.default_rng(7)
    rows = np.array(values)
    means = [rows[generator.integers(len(rows), size=len(rows))].mean() for _ in range(draws)]
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def interval(name: str, rows: list[JudgedRow], figure: str = "accuracy") -> Estimate:
    return score(open_protocol(name), rows, resamples=10).estimates[figure]


def wilson(right: int, n: int) -> tuple[float, float]:
    found = binomtest(right, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


@pytest.mark.parametrize("ties", every(4, [100, 0, 300, 380]))
def test_the_interval_of_tir_is_that_of_the_mean_of_row_values(ties: int) -> None:
    right = (400 - ties) * 2 // 5
    outcomes = [TIE] * ties + [RIGHT] * right + [WRONG] * (400 - ties - right)
    found = interval("tir", [pair(str(number), one) for number, one in enumerate(outcomes)])
    low, high = bootstrapped([{TIE: 0.5, RIGHT: 1.0, WRONG: 0.0}[one] for one in outcomes])
    assert found.n == 400
    assert found.high - found.low == pytest.approx(high - low, rel=0.06)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_without_ties_it_is_wilsons(right: int, wrong: int) -> None:
    if not right + wrong:
        return
    rows = [pair(str(number), RIGHT if number < right else WRONG) for number in range(right + wrong)]
    found = interval("tir", rows)
    assert (found.low, found.high) == pytest.approx(wilson(right, right + wrong), abs=1e-9)


def test_ties_alone_do_not_make_an_interval_without_width() -> None:
    found = interval("tir", [pair(str(number), TIE) for number in range(10)])
    assert found.value == 0.5
    assert 0.2 < found.low < 0.4
    assert 0.6 < found.high < 0.8


def test_votes_that_agree_in_both_orders_are_not_two_rows() -> None:
    outcomes = [RIGHT] * 70 + [WRONG] * 30
    twice = interval("every-order", [pair(str(number), one, one) for number, one in enumerate(outcomes)])
    assert twice.n == 100
    assert (twice.low, twice.high) == pytest.approx(wilson(70, 100), abs=1e-9)


def test_the_mean_of_sections_takes_votes_that_agree_in_both_orders_for_one_row() -> None:
    outcomes = [RIGHT] * 30 + [WRONG] * 10 + [RIGHT] * 45 + [TIE] * 5
    rows = [pair(str(n), one, one, domain="ab"[n >= 40]) for n, one in enumerate(outcomes)]
    twice, once = (interval(name, rows, "mean of sections") for name in ("plan-rewardbench", "ppe"))
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))


@pytest.mark.parametrize("seed", every(3, range(3)))
def test_the_row_is_the_unit_of_every_order(seed: int) -> None:
    rows = random_pairs(seed, count=400)
    found = interval("every-order", rows)
    low, high = bootstrapped([sum(vote.choice == row.label for vote in row.votes) / 2 for row in rows])
    assert found.n == 400
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)


def test_rows_with_different_numbers_of_votes_are_resampled_whole() -> None:
    generator = np.random.default_rng(5)
    rows = [
        pair(str(number), *[(RIGHT, WRONG)[int(generator.integers(2))]] * (1 + number % 2))
        for number in range(600)
    ]
    right = np.array([sum(vote.choice == 0 for vote in row.votes) for row in rows])
    votes = np.array([len(row.votes) for row in rows])
    draws = generator.integers(600, size=(20_000, 600))
    low, high = np.percentile(right[draws].sum(axis=1) / votes[draws].sum(axis=1), (2.5, 97.5))
    found = interval("every-order", rows)
    assert found.value == pytest.approx(right.sum() / votes.sum())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)


@pytest.mark.parametrize(
    ("name", "figure", "rows", "values"),
    [
        (
            "self-consistency",
            "SC@2",
            [sampled(str(number), RIGHT, (RIGHT, WRONG)[number % 4 > 0]) for number in range(400)],
            [1.0 if number % 4 == 0 else 0.5 for number in range(400)],
        ),
        (
            "rewardbench2",
            "Math",
            [
                JudgedRow(
                    id=str(number),
                    votes=(Vote(best=((2,), (0, 1, 2, 3))[number % 4 > 0]),),
                    candidates=4,
                    label=2,
                    domain="Math",
                )
                for number in range(400)
            ],
            [1.0 if number % 4 == 0 else 0.25 for number in range(400)],
        ),
        (
            "win-rate",
            "discrete win rate",
            [
                JudgedRow(id=str(number), votes=(), preference=Preference((2.0, 1.5)[number % 4 > 0]))
                for number in range(400)
            ],
            [1.0 if number % 4 == 0 else 0.5 for number in range(400)],
        ),
    ],
)
def test_other_shared_credits_have_the_interval_of_their_mean(
    name: str, figure: str, rows: list[JudgedRow], values: list[float]
) -> None:
    found = interval(name, rows, figure)
    low, high = bootstrapped(values)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)


def judged_with_programs(seed: int, count: int = 400) -> list[JudgedRow]:
    """Rows of which some always fail: with up to eight programs each, and with two views."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        broken = bool(generator.integers(4) == 0)
        kinds = ("syntax", "syntax", "refused", "ok") if broken else ("ok", "ok", "ok", "runtime")
        programs = tuple(kinds[int(one)] for one in generator.integers(4, size=generator.integers(9)))
        votes = tuple(
            Vote(best=(0,), order=order, stop="malformed" if broken else "verdict")
            for order in ((0, 1), (1, 0))
        )
        rows.append(JudgedRow(id=str(number), votes=votes, label=0, programs=programs))
    return rows


def bootstrapped_share(counted: list[int], trials: list[int]) -> tuple[float, float]:
    """Percentile interval of a share of trials, whose rows are drawn whole."""
    right, total = np.array(counted), np.array(trials)
    draws = np.random.default_rng(3).integers(len(right), size=(20_000, len(right)))
    low, high = np.percentile(right[draws].sum(axis=1) / total[draws].sum(axis=1), (2.5, 97.5))
    return float(low), float(high)


@pytest.mark.parametrize("figure", ["syntax errors", "runtime errors", "refused programs", "format errors"])
@pytest.mark.parametrize("seed", range(2))
def test_programs_and_answers_of_a_row_are_not_independent(figure: str, seed: int) -> None:
    rows = judged_with_programs(seed)
    found = interval("errors", rows, figure)
    kind = figure.partition(" ")[0].removesuffix("s")
    if kind == "format":
        counted = [sum(vote.stop == "malformed" for vote in row.votes) for row in rows]
        trials = [len(row.votes) for row in rows]
    else:
        counted = [row.programs.count(kind) for row in rows]
        trials = [len(row.programs) - (kind != "refused") * row.programs.count("refused") for row in rows]
    low, high = bootstrapped_share(counted, trials)
    assert found.value == pytest.approx(sum(counted) / sum(trials))
    assert found.n == sum(trials)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.004)
    assert found.high - found.low == pytest.approx(high - low, rel=0.06)


def test_one_program_and_one_answer_for_each_row_have_wilsons_interval() -> None:
    rows = [pair(str(number), RIGHT, programs=("syntax" if number < 20 else "ok",)) for number in range(100)]
    found = interval("errors", rows, "syntax errors")
    assert (found.low, found.high) == pytest.approx(wilson(20, 100), abs=1e-9)


def picked(number: int, solved: tuple[float, ...], prompt: str = "") -> Picked:
    said = (Message("user", prompt or f"p{number}"),)
    question = CandidateSet(JudgeTask(id=str(number), prompt=said, candidates=("x",) * len(solved)), "f:1")
    return Picked(question, Grade(solved, (None,) * len(solved)), 0, {})


@pytest.mark.parametrize("candidates", every(3, [2, 1, 8]))
def test_the_interval_of_pass_at_1_is_that_of_the_mean_of_questions(candidates: int) -> None:
    generator = np.random.default_rng(candidates)
    solved = generator.random((300, candidates)) < 0.3
    tally = SolvedTally()
    for number, row in enumerate(solved):
        tally.add(picked(number, tuple(map(float, row))))
    found = {line.name: line.solved for line in tally.lines if line.solved is not None}
    low, high = bootstrapped(list(solved.mean(axis=1)))
    assert (found["pass@1"].successes, found["pass@1"].n) == (pytest.approx(solved.mean(axis=1).sum()), 300)
    assert found["pass@1"].interval == pytest.approx((low, high), abs=0.004)
    assert found["oracle"].interval == pytest.approx(wilson(int(solved.any(axis=1).sum()), 300), abs=1e-9)
    assert found["majority"].interval == pytest.approx(wilson(int(solved[:, 0].sum()), 300), abs=1e-9)


def test_sets_of_the_same_prompt_are_not_independent() -> None:
    """40 prompts of ten sets, which are all solved or all not: the t interval of 40 means."""
    tally = SolvedTally()
    for number in range(400):
        tally.add(picked(number, (float(number % 40 < 30),), f"p{number % 40}"))
    (first, *_) = tally.lines
    assert first.solved is not None
    low, high = first.solved.interval
    half = t.ppf(0.975, 39) * np.sqrt(0.75 * 0.25 / 39)
    assert high - low == pytest.approx(2 * half, rel=0.08)
    assert str(first.solved).endswith("n = 400 in 40 clusters")


def test_the_accuracy_of_a_judged_file_has_the_interval_of_its_row_values() -> None:
    credits = [1.0] * 60 + [0.5] * 200 + [0.0] * 40
    tally = Tally()
    for credit in credits:
        tally.add(
            {
                "stop": "verdict",
                "views": [],
                "verdict": "tie" if credit == 0.5 else "A",
                "correct": credit,
                "programs": 0,
                "programs_failed": 0,
                "programs_refused": 0,
                "prompt_tokens": 0,
                "completion_tokens": 0,
            }
        )
    assert (tally.accuracy.rate, tally.accuracy.n) == (pytest.approx(160 / 300), 300)
    assert tally.accuracy.interval == pytest.approx(bootstrapped(credits), abs=0.004)


ROWS: dict[str, list[JudgedRow]] = {
    "rewardbench": [
        pair(f"{subset}{number}", RIGHT, domain=subset)
        for subset in ("hep-go", "xstest-should-refuse")
        for number in range(3)
    ],
    "rmb": [pair(str(number), RIGHT, domain="BoN Helpfulness") for number in range(3)],
    "rm-bench": [
        pair(f"{group}{cell}", RIGHT, domain=domain, tags=(f"group={group}", f"cell={cell}"))
        for group, domain in (("a", "chat"), ("b", "math"), ("c", "math"))
        for cell in ("00", "01", "02", "10", "11", "12", "20", "21", "22")
    ],
    "win-rate": [JudgedRow(id=str(number), votes=(), preference=Preference(1.7)) for number in range(3)],
    "mean-score": [sampled("a", RIGHT, RIGHT, scores=({0: 2, 1: 1}, {0: 2, 1: 1}))],
    "rationale-consistency": [
        JudgedRow(id=str(number), votes=(), domain="xy"[number % 2], reasons=MatchedReasons(0.5, 0.5))
        for number in range(3)
    ],
    "ratings": [
        JudgedRow(
            id=str(number),
            votes=(Vote(best=(0,), scores={0: number}),),
            candidates=1,
            ratings=(number % 3, 1.0),
        )
        for number in range(5)
    ],
    "rewardbench2-ties": [
        JudgedRow(
            id=f"{kind}:1",
            votes=(Vote(best=(0,), scores={0: 3, 1: 2, 2: 1}),),
            candidates=3,
            label=0,
            tags=(f"correct={count}",),
        )
        for kind, count in (("ref", 1), ("tied", 2))
    ],
}
ROWS["rewardbench2-overall"] = [
    *(replace(row, domain="Ties") for row in ROWS["rewardbench2-ties"]),
    pair("1", RIGHT, domain="Math"),
]
ROWS["arena-hard"] = [JudgedRow(id="1", votes=(Vote(best=RIGHT, order=(0, 1)),), sources=("x", "y"))]
ROWS["length-controlled"] = [
    JudgedRow(id=str(n), votes=(), preference=Preference(1 + n % 2, "b"), lengths=(9, 7 * n % 19))
    for n in range(40)
]
ROWS["rewardbench-strict"] = ROWS["rewardbench"]
ROWS["rm-bench-tie-half"] = ROWS["rm-bench"]
PLAIN = [
    pair(str(number), RIGHT, WRONG, domain="xy"[number % 2], programs=("ok",), cost=Cost(seconds=1))
    for number in range(4)
]


@pytest.mark.parametrize("protocol", [one for one in all_protocols() if one.card.name != "summary"])
def test_every_number_has_its_n(protocol: ScoringProtocol) -> None:
    scored = score(protocol, ROWS.get(protocol.card.name, PLAIN), resamples=3)
    assert all(estimate.n is not None and estimate.n > 0 for estimate in scored.estimates.values())


def test_the_n_of_a_figure_is_that_of_its_own_rows() -> None:
    def sizes(name: str, rows: list[JudgedRow]) -> dict[str, int | None]:
        return {key: one.n for key, one in score(open_protocol(name), rows, resamples=3).estimates.items()}

    assert sizes("rewardbench", ROWS["rewardbench"]) == {"mean of sections": 6, "Safety": 3, "Reasoning": 3}
    assert sizes("rm-bench", ROWS["rm-bench"]) == {
        "overall": 3,
        "easy": 3,
        "normal": 3,
        "hard": 3,
        "chat": 1,
        "math": 2,
    }
    assert sizes("cost", PLAIN) == dict.fromkeys(
        ("completion tokens", "prompt tokens", "seconds", "programs"), 8
    )
    recalled = sizes("rationale-consistency", ROWS["rationale-consistency"])
    assert recalled == {"rationale consistency": 3, "average precision": 3, "x": 2, "y": 1}


def test_every_printed_number_has_its_n(tmp_path: Path) -> None:
    """F1 and kappa over PandaLM's 999 rows, and the rates of a summary, which states no n."""
    verdicts, labels = (benchmark_file(f"pandalm/{name}testset-v1.json") for name in ("pandalm-7b-", ""))
    scored = ("score", verdicts, "--labels", labels, "--protocol", "three-class")
    done = command(*scored, "--full", code=0)
    (record,) = json.loads(command(*scored, "--json").stdout)
    sizes = {name: one["n"] for name, one in record["figures"].items()}
    of_class = {"precision of tie": 107, "recall of tie": 105}
    assert {name: sizes[name] for name in of_class} == of_class
    of_verdicts = [sizes[f"precision of {name}"] for name in ("A", "B", "tie")]
    of_labels = [sizes[f"recall of {name}"] for name in ("A", "B", "tie")]
    assert sum(of_verdicts) == sum(of_labels) == 999
    # Agreement, three macro means, and F1 of each class.
    assert list(sizes.values()).count(999) == 7
    assert sum(line.split()[-1:] == ["999"] for line in done.stdout.splitlines()[1:]) == 7
    assert "n = 999 (" in done.stdout.splitlines()[0]
    folder = "rm-r1/deepseek-distilled-qwen-32b"
    assert "not stated" in command("score", benchmark_file(f"{folder}/rm-bench.json")).stdout
