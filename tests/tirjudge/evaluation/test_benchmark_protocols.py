"""Benchmarks' own protocols against their published definitions, written out a second time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tirjudge.judged_pairs import figures, pair
from tirjudge.evaluation.benchmarks.rewardbench import SECTIONS
from tirjudge.evaluation.judged_rows import JudgedRow, Unscorable, Vote
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import cluster_count, score


@pytest.mark.parametrize(
    ("protocol", "best", "worth"),
    [
        ("tir", (0, 1), 0.5),
        ("tie-half", (0, 1), 0.5),
        ("one-order", (0, 1), 0.0),
        ("tie-wrong", (0, 1), 0.0),
        ("net-vote", (0, 1), 0.0),
        ("tir", (), 0.0),
        ("rewardbench", (), 0.5),
        ("rewardbench-strict", (), 0.0),
        ("rewardbench", (0, 1), 0.5),
    ],
)
def test_what_ties_and_failures_are_worth(protocol: str, best: tuple[int, ...], worth: float) -> None:
    scored = score(open_protocol(protocol), [pair("a", best, best, domain="donotanswer")])
    assert scored.estimates[scored.headline].value == worth
    assert scored.units.counts["tie" if best else "no verdict"] >= 1


def rm_bench_rows(seed: int) -> list[JudgedRow]:
    draw = random.Random(seed)
    return [
        JudgedRow(
            id=str(number),
            votes=(Vote(best=(), scores={index: draw.randint(1, 4) for index in range(6)}),),
            candidates=6,
            domain=draw.choice(("chat", "math", "safety-refuse", "safety-response")),
        )
        for number in range(40)
    ]


def brute_force_rm_bench(rows: Sequence[JudgedRow], tie: float) -> dict[str, float]:
    """Compute the scores as the benchmark's README describes them, cell by cell and domain by domain."""
    found: dict[str, list[float]] = {"easy": [], "normal": [], "hard": []}
    domains = {}
    for domain in {row.domain.split("-")[0] for row in rows}:
        ours = [row.votes[0].scores for row in rows if row.domain.split("-")[0] == domain]
        levels: dict[str, list[float]] = {"easy": [], "normal": [], "hard": []}
        for i in range(3):
            for j in range(3):
                wins = [
                    1.0 if scores[i] > scores[3 + j] else tie if scores[i] == scores[3 + j] else 0.0
                    for scores in ours
                ]
                level = "normal" if i == j else "hard" if i < j else "easy"
                levels[level].append(sum(wins) / len(wins))
        means = {level: sum(cells) / len(cells) for level, cells in levels.items()}
        domains[domain] = sum(means.values()) / 3
        for level, mean in means.items():
            found[level].append(mean)
    overall = {level: sum(means) / len(means) for level, means in found.items()}
    return {"overall": sum(domains.values()) / len(domains), **overall, **domains}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("protocol", "tie"), [("rm-bench", 0.0), ("rm-bench-tie-half", 0.5)])
def test_rm_bench_matrix_of_scores(seed: int, protocol: str, tie: float) -> None:
    rows = rm_bench_rows(seed)
    assert figures(protocol, rows) == pytest.approx(brute_force_rm_bench(rows, tie))


def test_rm_bench_pairs_give_what_the_scores_give() -> None:
    rows = rm_bench_rows(7)
    pairs = []
    for row in rows:
        scores = row.votes[0].scores
        for i in range(3):
            for j in range(3):
                mine, other = scores[i], scores[3 + j]
                best = (0, 1) if mine == other else (0,) if mine > other else (1,)
                tags = (f"group={row.id}", f"cell={i}{j}")
                pairs.append(pair(f"{row.id}/{i}{j}", best, domain=row.domain, tags=tags))
    assert figures("rm-bench", pairs) == pytest.approx(figures("rm-bench", rows))


def test_an_rm_bench_row_without_all_pairs_is_left_out_and_counted() -> None:
    whole = rm_bench_rows(1)[0]
    torn = pair("x/00", (0,), tags=("group=x", "cell=00"), domain="chat")
    scored = score(open_protocol("rm-bench"), [whole, torn], resamples=5)
    assert list(scored.units.ids) == [whole.id]
    assert scored.units.counts["left out: not all nine pairs were judged"] == 1


def official_ties_score(ref: dict[str, tuple[list, list]], tied: dict[str, tuple[list, list]]) -> float:
    """Compute the score of Ties as RewardBench 2's process_single_model does, step by step."""

    def stats(right: list, wrong: list) -> tuple[bool, float | None, float]:
        spread = max(right) - min(right) if len(right) > 1 else None
        margin = min(right) - max(wrong)
        return margin > 0, spread, margin

    ref_stats = {key: stats(*scores) for key, scores in ref.items()}
    tied_stats = {key: stats(*scores) for key, scores in tied.items()}
    keys = [key for key in ref_stats if key in tied_stats]
    preferred = [tied_stats[key][2] > tied_stats[key][1] for key in keys]
    hard = [min(ref_stats[key][2], tied_stats[key][2]) > tied_stats[key][1] for key in keys]
    bonus = []
    for key in keys:
        smaller, spread = min(ref_stats[key][2], tied_stats[key][2]), tied_stats[key][1]
        if spread:
            bonus.append(math.tanh(smaller / spread - 1))
        else:
            bonus.append(0.0 if smaller == 0 else math.copysign(1.0, smaller))
    return (
        0.3 * sum(one[0] for one in tied_stats.values()) / len(tied_stats)
        + 0.3 * sum(one[0] for one in ref_stats.values()) / len(ref_stats)
        + 0.2 * sum(preferred) / len(keys)
        + 0.2 * sum(hard) / len(keys)
        + 0.01 * sum(bonus) / len(keys)
    )


@given(st.integers(0, 10_000))
@settings(max_examples=30)
def test_ties_formula(seed: int) -> None:
    draw = random.Random(seed)

    def scores(count: int) -> list[int]:
        return [draw.randint(1, 10) for _ in range(count)]

    ref = {str(key): (scores(1), scores(3)) for key in range(5)}
    tied = {str(key): (scores(draw.randint(2, 5)), scores(3)) for key in range(4)}
    rows = [
        JudgedRow(
            id=f"{kind}:{key}",
            votes=(Vote(best=(), scores=dict(enumerate([*right, *wrong]))),),
            candidates=len(right) + len(wrong),
            label=0,
            domain="Ties",
            tags=(f"correct={len(right)}",),
        )
        for kind, prompts in (("ref", ref), ("tied", tied))
        for key, (right, wrong) in prompts.items()
    ]
    ties = official_ties_score(ref, tied)
    assert figures("rewardbench2-ties", rows)["Ties score"] == pytest.approx(ties)
    # The leaderboard's figure is the unweighted mean of the subsets, of which Ties is one.
    others = [
        JudgedRow(id="right", votes=(Vote(best=(0,)),), candidates=4, label=0, domain="Math"),
        JudgedRow(id="wrong", votes=(Vote(best=(1,)),), candidates=4, label=0, domain="Math"),
        JudgedRow(id="a tie of two", votes=(Vote(best=(0, 3)),), candidates=4, label=0, domain="Focus"),
        JudgedRow(id="0", votes=(Vote(best=(0,)),), candidates=4, label=0, domain="Safety"),
    ]
    overall = figures("rewardbench2-overall", [*rows, *others])
    assert overall["mean of subsets"] == pytest.approx((0.5 + 0.5 + 1 + ties) / 4)
    assert (overall["Math"], overall["Ties"]) == (0.5, pytest.approx(ties))


def test_rewardbench_2_overall_needs_ties_and_other_subsets() -> None:
    row = JudgedRow(id="1", votes=(Vote(best=(0,)),), candidates=4, label=0, domain="Math")
    with pytest.raises(Unscorable, match="Ties and of other subsets"):
        figures("rewardbench2-overall", [row])


def test_rewardbench_2_shares_ties_and_ranks_responses_without_a_score_last() -> None:
    def row(id: str, vote: Vote, subset: str) -> JudgedRow:
        return JudgedRow(id=id, votes=(vote,), candidates=4, label=0, domain=subset)

    rows = [
        row("right", Vote(best=(0,)), "Math"),
        row("tie", Vote(best=(0, 1)), "Math"),
        row("unread", Vote(best=()), "Focus"),
        row("one score missing", Vote(best=(), scores={0: 7, 1: 3, 2: 2}), "Focus"),
        row("ties", Vote(best=(1,)), "Ties"),
    ]
    scored = figures("rewardbench2", rows)
    assert scored == {"mean of subsets": (0.75 + 0.625) / 2, "Focus": 0.625, "Math": 0.75}


def test_rewardbench_weighs_subsets_by_example_counts() -> None:
    rows = [
        pair("1", (0,), domain="math-prm"),
        pair("2", (1,), domain="hep-cpp"),
        pair("3", (0,), domain="alpacaeval-easy"),
    ]
    scored = figures("rewardbench", rows)
    assert scored["Reasoning"] == pytest.approx(984 / (984 + 164))
    assert scored["mean of sections"] == pytest.approx((1 + 984 / (984 + 164)) / 2)
    assert sum(sum(subsets.values()) for subsets in SECTIONS.values()) == 2985 - 447 + 984


def test_an_rmb_set_is_right_only_if_every_loser_is_beaten() -> None:
    def against(loser: int, best: tuple[int, ...], group: str) -> JudgedRow:
        return pair(f"{group}-{loser}", best, tags=(f"group={group}",), domain="BoN Helpfulness")

    rows = [
        *(against(loser, (0,), "won") for loser in range(3)),
        *(against(loser, ((0,), (1,), (0,))[loser], "lost") for loser in range(3)),
        *(against(loser, ((0,), (0, 1))[loser], "tied") for loser in range(2)),
        pair("p", (0,), domain="Pairwise Helpfulness"),
    ]
    assert figures("rmb", rows) == pytest.approx(
        {"mean of sections": (1 + 1 / 3) / 2, "BoN Helpfulness": 1 / 3, "Pairwise Helpfulness": 1}
    )


def in_clusters(protocol: str) -> list[JudgedRow]:
    """60 units of a benchmark, of which every three have a prompt in common and the same outcome."""
    rows = []
    for n in range(60):
        shared: dict[str, Any] = {"cluster": f"prompt {n // 3}"}
        right = n // 3 % 3 > 0
        scores = {index: float(right == (index < 3)) for index in range(6)}
        vote = Vote(best=(), scores=scores)
        if protocol == "rmb":
            rows.append(pair(str(n), (0,) if right else (1,), domain="Pairwise Helpfulness", **shared))
        elif protocol == "rm-bench":
            rows.append(JudgedRow(id=str(n), votes=(vote,), candidates=6, domain="chat", **shared))
        else:
            tied: dict[str, Any] = {"votes": (vote,), "candidates": 6, "tags": ("correct=3",)}
            rows.append(JudgedRow(id=f"tied:{n}", **tied, **shared))
            rows.append(JudgedRow(id=f"ref:{n}", **tied, cluster=f"another prompt {n // 3}"))
    return rows


@pytest.mark.parametrize("protocol", ["rmb", "rm-bench", "rewardbench2-ties"])
def test_units_of_one_prompt_are_a_cluster(protocol: str) -> None:
    rows = in_clusters(protocol)
    together = score(open_protocol(protocol), rows)
    apart = score(open_protocol(protocol), [replace(row, cluster="") for row in rows])
    assert len(together.units.ids) == len(apart.units.ids) == 60
    assert (cluster_count(together.units), cluster_count(apart.units)) == (20, None)
    wide, narrow = (one.estimates[one.headline] for one in (together, apart))
    assert wide.value == narrow.value
    assert wide.high - wide.low > 1.4 * (narrow.high - narrow.low)
