"""Comparisons of two runs: pairs, rows in one run alone, summaries without pairs, and their properties."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tests.rows import every
from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_eval import write
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_pairs import OUTCOMES, pair
from tirjudge.evaluation.benchmarks.rewardbench import SECTIONS
from tirjudge.evaluation.judged_rows import JudgedRow, SummaryId, Unscorable, Vote
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import Comparison, compare, score
from tirjudge.evaluation.significance import mcnemar

PROTOCOLS = ("tir", "one-order", "every-order", "both-orders", "three-class", "kappa", "position")
NAMES = "abcdefghijkl"


@st.composite
def runs(draw: st.DrawFn) -> list[JudgedRow]:
    """A run over some of twelve rows, in any order; a row's section and label are the same in all runs."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    outcomes = st.sampled_from(OUTCOMES)
    return [
        pair(name, draw(outcomes), draw(outcomes), label=ord(name) % 2, domain="xyz"[ord(name) % 3])
        for name in names
    ]


def compared(name: str, first: list[JudgedRow], second: list[JudgedRow], resamples: int = 5) -> Comparison:
    protocol = open_protocol(name)
    return compare(protocol, protocol.units(first), protocol.units(second), resamples=resamples)


def common(first: list[JudgedRow], second: list[JudgedRow]) -> bool:
    return bool({row.id for row in first} & {row.id for row in second})


def numbers(found: Comparison) -> dict[str, tuple[float, ...]]:
    return {name: (one.value, one.low, one.high) for name, one in found.differences.items()}


@settings(deadline=None, max_examples=60)
@given(runs(), runs(), st.sampled_from(PROTOCOLS), st.randoms(use_true_random=False))
def test_shuffling_changes_nothing(
    first: list[JudgedRow], second: list[JudgedRow], name: str, draw: random.Random
) -> None:
    if not common(first, second):
        return
    before = compared(name, first, second)
    shuffled = [draw.sample(rows, len(rows)) for rows in (first, second)]
    after = compared(name, *shuffled)
    expected = {key: pytest.approx(one, nan_ok=True) for key, one in numbers(before).items()}
    assert numbers(after) == expected
    assert (after.common, after.gained, after.lost) == (before.common, before.gained, before.lost)
    assert after.p_value == before.p_value
    assert set(after.only_first) == set(before.only_first)
    assert set(after.only_second) == set(before.only_second)


@settings(deadline=None, max_examples=60)
@given(runs(), runs(), st.sampled_from(PROTOCOLS))
def test_swapping_the_sides_negates(first: list[JudgedRow], second: list[JudgedRow], name: str) -> None:
    if not common(first, second):
        return
    one, other = compared(name, first, second), compared(name, second, first)
    negated = {key: (-value, -high, -low) for key, (value, low, high) in numbers(one).items()}
    assert numbers(other) == {key: pytest.approx(value, nan_ok=True) for key, value in negated.items()}
    assert (other.gained, other.lost) == (one.lost, one.gained)
    assert other.p_value == one.p_value
    assert (other.only_first, other.only_second) == (one.only_second, one.only_first)


@settings(deadline=None)
@given(runs(), runs())
def test_pairing_equals_a_brute_force_join(first: list[JudgedRow], second: list[JudgedRow]) -> None:
    joined = [(one, other) for one in first for other in second if one.id == other.id]
    if not joined:
        with pytest.raises(Unscorable, match="no row in common"):
            compared("first-order", first, second)
        return
    found = compared("first-order", first, second)
    right = [[row.votes[0].choice == row.label for row in both] for both in joined]
    assert found.common == len(joined)
    assert found.gained == sum(after and not before for before, after in right)
    assert found.lost == sum(before and not after for before, after in right)
    assert found.first["accuracy"] == sum(before for before, _ in right) / len(right)
    assert found.second["accuracy"] == sum(after for _, after in right) / len(right)
    assert found.differences["accuracy"].n == len(joined)
    ids = [{row.id for row in rows} for rows in (first, second)]
    assert (set(found.only_first), set(found.only_second)) == (ids[0] - ids[1], ids[1] - ids[0])
    assert found.left_out == len(ids[0] ^ ids[1])


def test_the_interval_is_that_of_a_paired_bootstrap() -> None:
    draw = random.Random(1)
    rows = [[pair(str(n), draw.choice(OUTCOMES[:3])) for n in range(300)] for _ in range(2)]
    protocol = open_protocol("tir")
    found = compare(protocol, *map(protocol.units, rows)).differences["accuracy"]
    first, second = (
        np.array([{(0,): 1, (1,): 0, (0, 1): 0.5}[row.votes[0].best] for row in run]) for run in rows
    )
    places = np.random.default_rng(2).integers(300, size=(20_000, 300))
    low, high = np.percentile((second - first)[places].mean(axis=1), (2.5, 97.5))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)


def test_a_row_in_two_sections_is_named() -> None:
    with pytest.raises(Unscorable, match="row 'a' belongs to 'x' in the first run and to 'y' in the second"):
        compared("tir", [pair("a", (0,), domain="x")], [pair("a", (0,), domain="y")])


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_the_exact_sum_of_binomial_terms_half_of_the_last(gained: int, lost: int) -> None:
    terms = [math.comb(gained + lost, k) for k in range(min(gained, lost) + 1)]
    tail = sum(terms) - terms[-1] / 2
    assert mcnemar(gained, lost) == pytest.approx(min(1.0, 2 * tail / 2 ** (gained + lost)))


@pytest.mark.parametrize(("gained", "lost"), [(60_400, 59_600), (250_600, 249_400)])
def test_mcnemar_answers_at_once_for_many_discordant_rows(gained: int, lost: int) -> None:
    started = time.process_time()
    found = mcnemar(gained, lost)
    assert time.process_time() - started < 5
    # The normal approximation.
    assert found == pytest.approx(2 * norm.sf((gained - lost) / math.sqrt(gained + lost)), rel=0.01)


def rewardbench_summary(path: Path, **changes: float) -> Path:
    sizes = {subset: size for subsets in SECTIONS.values() for subset, size in subsets.items()}
    rates = {subset: round(0.8 * size) / size for subset, size in (sizes | {"math-prm": 447}).items()}
    path.write_text(json.dumps(rates | changes))
    return path


def test_unpaired_runs_keep_their_clusters() -> None:
    """Newcombe's interval (1998, method 10) from those of both runs, whose rows are copies of 40 rows."""

    def copies(count: int, wrong: int) -> list[JudgedRow]:
        return [
            pair(SummaryId(f"{row}/{copy}"), (int(row % wrong == 0),), cluster=f"c{row}")
            for row in range(40)
            for copy in range(count)
        ]

    protocol, runs = open_protocol("tir"), [copies(3, 3), copies(5, 4)]
    found = compare(protocol, *map(protocol.units, runs))
    assert not found.paired
    one, other = (score(protocol, rows).estimates["accuracy"] for rows in runs)
    difference = found.differences["accuracy"]
    down = math.hypot(other.value - other.low, one.high - one.value)
    up = math.hypot(other.high - other.value, one.value - one.low)
    expected = [other.value - one.value - down, other.value - one.value + up]
    assert [difference.low, difference.high] == pytest.approx(expected)
    # Forty rows each, not 120 and 200.
    assert difference.high - difference.low > 0.3


def test_summaries_are_compared_unpaired(tmp_path: Path) -> None:
    """The interval is the normal approximation of independent binomial subsets, which a pairing narrows."""
    first = rewardbench_summary(tmp_path / "first.json")
    second = rewardbench_summary(tmp_path / "second.json", **{"math-prm": 380 / 447, "donotanswer": 1.0})
    compared = ("compare", first, second, "--protocol", "rewardbench")
    done = command(*compared, "--full", code=0)
    assert "compared unpaired, as independent samples: a summary has no rows" in done.stdout
    assert "McNemar" not in done.stdout
    assert "compared in pairs" not in done.stdout
    (record,) = json.loads(command(*compared, "--json").stdout)
    assert (record["paired"], record["p_value"], record["gained"]) == (False, None, None)
    variance = 0.0
    for path in (first, second):
        rates = json.loads(path.read_text())
        for subsets in SECTIONS.values():
            for subset, weight in subsets.items():
                share = weight / sum(subsets.values()) / 4
                rows = 447 if subset == "math-prm" else weight
                variance += share**2 * rates[subset] * (1 - rates[subset]) / rows
    difference = record["differences"]["mean of sections"]
    assert difference["high"] - difference["low"] == pytest.approx(2 * 1.96 * variance**0.5, rel=0.1)
    assert difference["n"] == 2985


def test_a_published_summary_differs_from_itself_by_nothing_that_is_certain() -> None:
    path = benchmark_file("rm-r1/deepseek-distilled-qwen-32b/rewardbench-subsets.json")
    done = command("compare", path, path, "--protocol", "rewardbench", "--full", code=0)
    line = next(line for line in done.stdout.splitlines() if "mean of sections" in line)
    assert "+0.00" in line
    assert "+0.00 to +0.00" not in line


def test_rates_without_rows_have_no_interval_of_their_difference() -> None:
    path = benchmark_file("rm-r1/deepseek-distilled-qwen-32b/rm-bench.json")
    done = command("compare", path, path, "--full", code=0)
    assert " to " not in next(line for line in done.stdout.splitlines() if "mean of domains" in line)
    assert "bootstrap" not in done.stdout


def annotation(number: int, preference: float, **fields: object) -> dict[str, Any]:
    row = {"instruction": f"Instruction {number}", "output_1": "a", "generator_1": "base", "output_2": "b"}
    return row | {"generator_2": "model", "preference": preference} | fields


def annotations(count: int, seed: int, **fields: object) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [annotation(number, draw.uniform(1, 2), **fields) for number in range(count)]


def win_rates(tmp_path: Path, first: Path, second: Path) -> tuple[dict[str, Any], str]:
    words = ("compare", first, second, "--protocol", "win-rate")
    done = command(*words, "--full", code=0)
    (record,) = json.loads(command(*words, "--json").stdout)
    return record, done.stdout


def test_alpaca_eval_files_equal_their_own_shuffle(tmp_path: Path) -> None:
    rows = annotations(50, 0)
    first = write(tmp_path / "first.jsonl", rows)
    second = write(tmp_path / "second.jsonl", random.Random(1).sample(rows, 50))
    record, _ = win_rates(tmp_path, first, second)
    difference = record["differences"]["win rate"]
    # Agresti and Min 2005 with 50 equal pairs: half a pair is added to each of the four kinds.
    half = norm.ppf(0.975) / 52
    assert (difference["value"], difference["low"], difference["high"]) == pytest.approx((0, -half, half))
    assert (record["common"], record["left_out"]) == (50, 0)


def test_alpaca_eval_models_are_paired_by_instruction(tmp_path: Path) -> None:
    """The difference is that of a numpy bootstrap over the instructions that both files contain."""
    first_rows, second_rows = annotations(200, 0), annotations(203, 9, generator_2="another")[2:]
    first = write(tmp_path / "first.jsonl", first_rows)
    second = write(tmp_path / "second.jsonl", random.Random(1).sample(second_rows, 201))
    record, shown = win_rates(tmp_path, first, second)
    preferences = [
        {row["instruction"]: row["preference"] for row in rows} for rows in (first_rows, second_rows)
    ]
    both = sorted(set(preferences[0]) & set(preferences[1]))
    differences = np.array([preferences[1][name] - preferences[0][name] for name in both])
    places = np.random.default_rng(0).integers(len(both), size=(20_000, len(both)))
    low, high = np.percentile(differences[places].mean(axis=1), (2.5, 97.5))
    found = record["differences"]["win rate"]
    assert found["value"] == pytest.approx(differences.mean())
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.006)
    assert (found["n"], record["common"]) == (198, 198)
    assert [id.partition(" #")[0] for id in record["only_first"]] == ["Instruction 0", "Instruction 1"]
    assert len(record["only_second"]) == 3
    assert "2 only in first.jsonl: Instruction 0 #" in shown
    assert "3 only in second.jsonl: " in shown


def test_alpaca_eval_files_of_several_models_are_paired_by_model(tmp_path: Path) -> None:
    rows = [*annotations(20, 0), *annotations(20, 1, generator_2="another")]
    first = write(tmp_path / "first.jsonl", rows)
    second = write(tmp_path / "second.jsonl", random.Random(1).sample(rows, 39))
    record, shown = win_rates(tmp_path, first, second)
    assert (record["common"], record["left_out"]) == (39, 1)
    assert record["differences"]["win rate"]["value"] == pytest.approx(0)
    assert "1 only in first.jsonl: Instruction " in shown
    assert " by " in shown


@pytest.mark.parametrize("rows", [10_000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", every(3, ["three-class", "tir", "net-vote"]))
def test_many_rows_are_compared_in_seconds(name: str, rows: int) -> None:
    def run(seed: int) -> list[JudgedRow]:
        draw = random.Random(seed)
        return [
            JudgedRow(
                id=str(number),
                votes=(
                    Vote(best=OUTCOMES[draw.randrange(3)], order=(0, 1)),
                    Vote(best=OUTCOMES[draw.randrange(3)], order=(1, 0)),
                ),
                label=number % 2,
            )
            for number in range(rows)
        ]

    protocol = open_protocol(name)
    first, second = protocol.units(run(0)), protocol.units(run(1))
    started = time.process_time()
    found = compare(protocol, first, second)
    # McNemar's test with exact integers took 22 s for 20,000 rows, and grew with the cube of their number.
    assert time.process_time() - started < 30 * rows / 100_000
    assert found.common == rows
