"""Rows that belong together, contradict each other or cannot be joined; sections, and numbers of few rows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, t
from statsmodels.stats.inter_rater import cohens_kappa

from benchmarks import coverage
from benchmarks.coverage.rows import equal_cases
from tests.rows import every
from tests.tirjudge.cli.test_eval import write
from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_pairs import pair, sampled
from tirjudge.evaluation.judged_rows import JudgedRow
from tirjudge.evaluation.judges import judges_agreement
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import compare, score
from tirjudge.evaluation.significance import clustered_mcnemar
from tirjudge.statistics.estimators import Credits
from tirjudge.statistics.proportions import wilson_interval

COLUMNS = ("--column", "prediction=p", "--column", "label=l")


def run(right: list[int], per_section: int = 0) -> list[JudgedRow]:
    return [
        pair(str(n), (0,) if one else (1,), domain=f"s{n // per_section:03}" if per_section else "")
        for n, one in enumerate(right)
    ]


@pytest.mark.parametrize("per_section", [0, 1, 2])
def test_sections_do_not_shrink_the_interval_of_a_difference_over_all_rows(per_section: int) -> None:
    """200 rows, 19 gained and 25 lost: Agresti and Min 2005, with half a pair of each kind, by hand."""
    before = [0] * 19 + [1] * 25 + [1] * 100 + [0] * 56
    after = [1] * 19 + [0] * 25 + [1] * 100 + [0] * 56
    protocol = open_protocol("tir")
    runs = [protocol.units(run(right, per_section)) for right in (before, after)]
    found = compare(protocol, *runs)
    centre = (19.5 - 25.5) / 202
    half = norm.ppf(0.975) * math.sqrt(((19.5 + 25.5) / 202 - centre**2) / 202)
    difference = found.differences["accuracy"]
    assert (difference.low, difference.high) == pytest.approx((centre - half, centre + half))
    if per_section:
        mean = found.differences["mean of sections"]
        assert math.isnan(mean.low)
        assert (
            mean.no_interval
            == f"{200 // per_section} of {200 // per_section} sections have fewer than 10 rows"
        )


def test_the_mean_of_large_sections_has_the_interval_of_its_variance() -> None:
    """Sections of 40 and 160 rows with the same weight, against the normal approximation of their mean."""
    right = [1] * 20 + [0] * 20 + [1] * 120 + [0] * 40
    rows = [pair(str(n), (0,) if one else (1,), domain="ab"[n >= 40]) for n, one in enumerate(right)]
    found = score(open_protocol("tir"), rows).estimates["mean of sections"]
    error = math.sqrt(0.5 * 0.5 / 40 / 4 + 0.75 * 0.25 / 160 / 4)
    assert found.value == pytest.approx(0.625)
    assert found.low < 0.625 < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.04)


def test_rows_of_one_prompt_are_not_independent(tmp_path: Path) -> None:
    """40 prompts whose ten rows are all right or all wrong are 40 rows; the number of prompts is printed."""
    rows = [
        {"id": f"{g}-{n}", "prompt": f"q{g}", "p": "AB"[g < 10], "l": "A"}
        for g in range(40)
        for n in range(10)
    ]
    run = write(tmp_path / "run.jsonl", rows)
    done = command("score", run, *COLUMNS, "--protocol", "tir", code=0)
    assert "accuracy 75.00 % [" in done.stdout
    assert "n = 400 in 40 clusters" in done.stdout
    (record,) = json.loads(command("score", run, *COLUMNS, "--protocol", "tir", "--json").stdout)
    found = record["figures"]["accuracy"]
    # The t interval of 40 means that are 0 or 1.
    half = t.ppf(0.975, 39) * math.sqrt(0.75 * 0.25 / 39)
    assert found["high"] - found["low"] == pytest.approx(2 * half, rel=0.08)
    assert record["clusters"] == 40


@pytest.mark.parametrize("which", [0, 1])
def test_a_comparison_takes_the_clusters_of_the_run_that_has_prompts(which: int) -> None:
    """A run with --no-texts has none, and may be the first or the second."""
    runs = [
        [pair(str(n), (int((n // 5 + shift) % 3 == 0),), cluster=f"q{n // 5}") for n in range(200)]
        for shift in (0, 1)
    ]
    protocol = open_protocol("verdict")
    whole = compare(protocol, *map(protocol.units, runs))
    runs[which] = [replace(row, cluster="") for row in runs[which]]
    found = compare(protocol, *map(protocol.units, runs))
    assert (found.clusters, found.p_value) == (40, whole.p_value)
    assert found.differences == whole.differences
    agreement = judges_agreement(runs)
    assert agreement is not None
    assert agreement.clusters == 40


def test_a_column_names_what_rows_have_in_common(tmp_path: Path) -> None:
    rows = [{"id": n, "user": n % 5, "p": "A", "l": "A"} for n in range(50)]
    run = write(tmp_path / "run.jsonl", rows)
    assert "in " not in command("score", run, *COLUMNS, "--protocol", "tir").stdout.partition("n = 50")[2][:4]
    assert "n = 50 in 5 clusters" in command("score", run, *COLUMNS, "--cluster", "user").stdout
    done = command("score", run, *COLUMNS, "--cluster", "team", code=2)
    assert "run.jsonl:1: no value in the column 'team' of --cluster" in done.stderr


@pytest.mark.parametrize("users", [1, 19])
def test_few_clusters_give_no_interval_and_say_so(tmp_path: Path, users: int) -> None:
    rows = [{"id": n, "user": n % users, "p": "AB"[n % 3 == 0], "l": "A"} for n in range(60)]
    other = [one | {"p": "AB"[n % 4 == 0]} for n, one in enumerate(rows)]
    runs = [write(tmp_path / f"{name}.jsonl", found) for name, found in (("one", rows), ("other", other))]
    words = (*COLUMNS, "--cluster", "user", "--protocol", "tir")
    clusters = "cluster" if users == 1 else "clusters"
    shown = f"n = 60 in {users} {clusters} (no interval: fewer than 20 clusters of rows)"
    for done in (command("score", runs[0], *words), command("compare", *runs, *words)):
        assert shown in done.stdout
        assert "[" not in done.stdout
    (record,) = json.loads(command("compare", *runs, *words, "--json").stdout)
    assert record["differences"]["accuracy"]["low"] is None
    assert record["differences"]["accuracy"]["detectable"] is None
    summed = Credits()
    for n in range(60):
        summed.add(float(n % 3 > 0), f"user {n % users}")
    assert str(summed.mean) == f"66.7%, n = 60 in {users} {clusters}"
    assert summed.mean.bounds is None


def wilson_of_kappa(table: NDArray[np.float64]) -> list[float]:
    """Return the interval of kappa for clusters of equal rows, of which `table` counts the pairs of classes.

    The derivatives of kappa are those of Fleiss, Cohen and Everitt (1969), checked with the standard error of
    statsmodels, at a table with two clusters more whose classes are as if by chance. The variance of the
    jackknife by cluster gives the size of Wilson's interval of the share of equal classes.
    """
    count = table.sum()
    chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / count**2
    shares = (table + 2 * chance) / (count + 2)
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    observed, expected = shares.trace(), float(rows @ columns)
    both = columns[:, None] + rows[None, :]
    slopes = ((1 - expected) * np.eye(len(table)) - (1 - observed) * both) / (1 - expected) ** 2
    slopes -= (shares * slopes).sum()
    peer = cohens_kappa((count + 2) * shares)
    assert (shares * slopes**2).sum() / (count + 2) == pytest.approx(peer.var_kappa)
    variance = (table * slopes**2).sum() * count / (count - 1) + 2 * (chance * slopes**2).sum()
    by_chance = float(chance.trace())
    share = by_chance + peer.kappa * (1 - by_chance)
    size = share * (1 - share) * (count + 2) ** 2 / (variance * (1 - by_chance) ** 2)
    rate, z = table.trace() / count, t.ppf(0.975, count - 1)
    centre, half = rate + z * z / size / 2, z * math.sqrt(rate * (1 - rate) / size + (z / size / 2) ** 2)
    ends = [(centre + sign * half) / (1 + z * z / size) for sign in (-1, 1)]
    return [(one - by_chance) / (1 - by_chance) for one in ends]


def test_calibration_takes_clusters_as_units(tmp_path: Path) -> None:
    """Thirty rows, each ten times: the kappa of thirty rows, with Student's t for thirty clusters."""
    said, people = ([one[n % 4 == 0] for n in range(30)] for one in ("AB", "AB"))
    people[1::7] = "BBBBB"
    rows = [{"user": n % 30, "p": said[n % 30]} for n in range(300)]
    run = write(tmp_path / "run.jsonl", rows)
    labels = write(tmp_path / "labels.jsonl", [{"label": people[n % 30]} for n in range(300)])
    words = ("score", run, "--column", "prediction=p", "--calibrate", labels, "--cluster", "user", "--json")
    (found,) = json.loads(command(*words).stdout)["agreement"]
    table = [[sum((s, p) == (a, b) for s, p in zip(said, people, strict=True)) for b in "AB"] for a in "AB"]
    expected = cohens_kappa(table)
    assert found["kappa"]["value"] == pytest.approx(expected.kappa)
    bounds = [found["kappa"][bound] for bound in ("low", "high")]
    assert bounds == pytest.approx(wilson_of_kappa(np.array(table, dtype=float)), abs=1e-5)
    equal = sum(table[place][place] for place in (0, 1)) / 30
    half = t.ppf(0.975, 29) * math.sqrt(equal * (1 - equal) / 29)
    assert found["agreement"]["high"] - found["agreement"]["low"] == pytest.approx(2 * half, rel=0.08)


@pytest.mark.slow
def test_an_id_that_occurs_again_after_many_rows_is_found(tmp_path: Path) -> None:
    rows = [{"id": n, "p": "A", "l": "A"} for n in (*range(25_000), 3)]
    done = command("score", write(tmp_path / "run.jsonl", rows), *COLUMNS, code=2)
    assert "run.jsonl:25001: two rows have the id '3'" in done.stderr


def test_the_clustered_test_is_the_one_of_durkalski() -> None:
    """With changes by hand: sums of the clusters 2, 1, -1, 0, so that the statistic is 2 / sqrt(6)."""
    changes = np.array([1.0, 1, 1, 0, -1, 0, 1, -1])
    clusters = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    assert clustered_mcnemar(changes, clusters) == pytest.approx(2 * t.sf(2 / math.sqrt(6), 2))
    assert clustered_mcnemar(np.zeros(4), np.arange(4)) == 1.0


@pytest.fixture(scope="module")
def cases() -> list[coverage.Case]:
    return [*equal_cases()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "only", every(4, ["50 prompts of 10", "n = 30", "of 10 rows", "two skewed, n = 200"])
)
def test_intervals_cover_and_tests_keep_their_level(only: str, cases: list[coverage.Case]) -> None:
    """A short version of `python -m benchmarks.coverage`."""
    found = [coverage.measured(case, 300, seed=1) for case in cases if only in case.name]
    wrong = [one for one in found if one.printed > 0.1 and not one.holds(slack=3.5)]
    assert found
    assert not wrong


def test_few_rows_of_a_class_give_no_interval_and_say_so(tmp_path: Path) -> None:
    rows = [{"p": "AB"[n % 3 == 0], "l": "AB"[n % 4 == 0]} for n in range(30)]
    run = write(tmp_path / "run.jsonl", rows)
    done = command("score", run, *COLUMNS, "--protocol", "three-class", "--full", code=0)
    figures = "precision, recall, F1, F1 of A, F1 of B"
    assert f"no interval of {figures}: a class has fewer than 20 rows" in " ".join(done.stdout.split())


@pytest.mark.parametrize("joined", ["--labels", "--calibrate"])
def test_one_label_too_many_is_refused(tmp_path: Path, joined: str) -> None:
    """100 verdicts, and 101 labels of which the extra one comes first and moves all others."""
    verdicts = write(tmp_path / "run.jsonl", [{"p": "AB"[n % 2]} for n in range(100)])
    labels = write(tmp_path / "labels.jsonl", [{"label": "A"}, *({"label": "AB"[n % 2]} for n in range(100))])
    place = ("--column", "label=label") if joined == "--labels" else ()
    done = command("score", verdicts, "--column", "prediction=p", *place, joined, labels, code=2)
    assert "labels.jsonl has 101 labels and " in done.stderr
    assert " has 100 rows" in done.stderr
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[:50]))
    done = command("score", verdicts, "--column", "prediction=p", *place, joined, labels, code=2)


OURS: dict[str, Any] = {
    "label": 0, "domain": "", "tags": [], "stop": "verdict", "verdict": "A", "programs": 0,
    "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1,
}  # fmt: skip


def judged(id: str, *choices: int, **more: Any) -> dict[str, Any]:
    views = [
        {"view": "AB", "order": [0, 1], "sample": 0, "stop": "verdict", "segments": []}
        | {"verdict": {"choice": one, "tie": False, "scores": {}}}
        for one in choices
    ]
    return {"id": id, **OURS, "views": views, **more}


def test_contradictory_rows_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [judged("a", 0, model="x"), judged("b", 0, model="y")])
    done = command("score", path, code=2)
    assert "run.jsonl:2: a verdict of 'y' among those of 'x'" in done.stderr
    done = command("score", write(path, [judged("a", 0, 1)]), code=2)
    assert "two different verdicts on the same order and sample" in done.stderr
    path.write_text('{"p": "A", "label": "A", "label": "B"}\n')
    done = command("score", path, "--column", "prediction=p", "--column", "label=label", code=2)
    assert "two values of 'label' in one object" in done.stderr


def test_swapped_verdicts_that_name_responses_are_refused(tmp_path: Path) -> None:
    """A perfect judge's: read as places they would be 0 % consistent."""
    first = write(tmp_path / "first.jsonl", [{"p": "AB"[n % 2], "l": "AB"[n % 2]} for n in range(40)])
    done = command("score", first, *COLUMNS, "--swapped", first, code=2)
    assert "give them as prediction_swapped" in done.stderr
    places = write(tmp_path / "places.jsonl", [{"p": "BA"[n % 2], "l": "AB"[n % 2]} for n in range(40)])
    assert "accuracy 100.00 %" in command("score", first, *COLUMNS, "--swapped", places).stdout
    always_first = write(tmp_path / "always.jsonl", [{"p": "A", "l": "AB"[n % 2]} for n in range(40)])
    assert command("score", always_first, *COLUMNS, "--swapped", always_first).exit_code == 0


def test_unlabelled_runs_say_that_accuracy_needs_labels(tmp_path: Path) -> None:
    first = write(tmp_path / "first.jsonl", [judged("a", 0, label=None)])
    second = write(tmp_path / "second.jsonl", [judged("a", 1, label=None)])
    done = command("compare", first, second)
    assert "accuracy needs labels, and no row has one" in done.stderr
    assert "syntax errors -" not in done.stdout


def test_a_mean_of_samples_is_a_share() -> None:
    """Ten rows that are right in both samples: a bootstrap would give an interval without width."""
    rows = [sampled(str(n), (0,), (0,)) for n in range(10)]
    found = score(open_protocol("self-consistency"), rows).estimates["mean of single samples"]
    assert found.value == 1
    assert found.low < 0.8


def unequal(groups: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clusters of lognormal sizes, and two runs whose rows are alike within a cluster."""
    draw = np.random.default_rng(5)
    codes = np.arange(groups).repeat(np.ceil(draw.lognormal(1, 1.3, groups)).astype(int))
    common = draw.random(groups)[codes]
    first = (np.where(draw.random(len(codes)) < 0.5, common, draw.random(len(codes))) < 0.7).astype(float)
    return codes, first, np.where(draw.random(len(codes)) < 0.6, first, draw.random(len(codes)) < 0.7)


def jackknifed(codes: np.ndarray, values: np.ndarray) -> float:
    """The half width of the t interval of a mean, by leaving out one cluster at a time."""
    groups = int(codes.max()) + 1
    left_out = np.array([values[codes != one].mean() for one in range(groups)])
    error = math.sqrt((groups - 1) / groups * ((left_out - left_out.mean()) ** 2).sum())
    sizes = np.bincount(codes)
    return float(t.ppf(0.975, sizes.sum() ** 2 / (sizes**2).sum() - 1)) * error


def test_clusters_of_unequal_size_have_the_interval_of_the_jackknife() -> None:
    codes, first, second = unequal()
    protocol = open_protocol("tir")
    runs = [
        protocol.units(pair(str(n), (int(one == 0),), cluster=f"q{codes[n]}") for n, one in enumerate(run))
        for run in (first, second)
    ]
    rows = [pair(str(n), (int(one == 0),), cluster=f"q{codes[n]}") for n, one in enumerate(first)]
    found = score(protocol, rows).estimates["accuracy"]
    # Wilson's interval is a little narrower, and units that keep the variance above 0 make it wider.
    assert 0.97 < (found.high - found.low) / (2 * jackknifed(codes, first)) < 1.2
    difference = compare(protocol, *runs).differences["accuracy"]
    assert 0.97 < (difference.high - difference.low) / (2 * jackknifed(codes, second - first)) < 1.2


def test_one_prompt_with_half_of_the_rows_gives_no_interval_and_says_so(tmp_path: Path) -> None:
    """99 prompts of two rows and one of 200 count as 398² / (200² + 99 * 2²) = 3.9 prompts."""
    rows = [{"id": n, "prompt": f"q{min(n // 2, 99)}", "p": "AB"[n % 3 == 0], "l": "A"} for n in range(398)]
    other = [one | {"p": "AB"[n % 5 == 0]} for n, one in enumerate(rows)]
    runs = [write(tmp_path / f"{name}.jsonl", found) for name, found in (("one", rows), ("other", other))]
    words = (*COLUMNS, "--protocol", "tir")
    shown = "n = 398 in 100 clusters (no interval: 100 clusters of unequal size count as 3.9, fewer than 20)"
    for done in (command("score", runs[0], *words), command("compare", *runs, *words)):
        assert shown in done.stdout
        assert "[" not in done.stdout


def test_a_cluster_that_lacks_a_row_leaves_twenty_clusters() -> None:
    rows = [pair(str(n), (int(n % 3 == 0),), cluster=f"q{n % 20}") for n in range(99)]
    found = score(open_protocol("tir"), rows).estimates["accuracy"]
    assert found.low < found.value < found.high


@pytest.mark.parametrize("wrong", [0, 1])
def test_kappa_and_f1_near_1_stay_below_1_and_have_a_width(tmp_path: Path, wrong: int) -> None:
    """60 rows of which at most one is wrong: the interval of 60 or 59 of 60 equal classes, by Wilson."""
    rows = [{"id": n, "p": "AB"[(n < wrong) ^ (n % 2)], "l": "AB"[n % 2]} for n in range(60)]
    run = write(tmp_path / "run.jsonl", rows)
    words = ("score", run, *COLUMNS, "--protocol", "kappa", "--protocol", "three-class", "--json")
    kappa, classes = json.loads(command(*words).stdout)
    low, high = wilson_interval(60 - wrong, 60)
    found = kappa["figures"]["judge and label"]
    assert (found["low"], found["high"]) == pytest.approx((2 * low - 1, 2 * high - 1), abs=0.03)
    assert found["low"] < found["value"] <= found["high"] <= 1
    f1 = classes["figures"]["F1"]
    assert (f1["low"], f1["high"]) == pytest.approx((low, high), abs=0.015)


@pytest.mark.parametrize(("given", "bounds"), [([4, 4], None), ([3, 5, 4, 4, 5], (3.161, 5.239))])
def test_the_mean_of_few_ratings_has_students_interval(
    tmp_path: Path, given: list[int], bounds: tuple[float, float] | None
) -> None:
    run = write(tmp_path / "run.jsonl", [{"id": n, "r": one} for n, one in enumerate(given)])
    words = ("score", run, "--column", "rating=r", "--protocol", "ratings")
    (record,) = json.loads(command(*words, "--json").stdout)
    found = record["figures"]["mean score"]
    if bounds is None:
        assert (found["low"], found["no_interval"]) == (None, "the values do not vary")
    else:
        expected = t.interval(0.95, 4, np.mean(given), np.std(given, ddof=1) / math.sqrt(5))
        assert expected == pytest.approx(bounds, abs=0.001)
        assert (found["low"], found["high"]) == pytest.approx(expected, abs=0.005)
