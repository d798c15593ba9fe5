"""Ratings and best of k: numbers beside scipy, scikit-learn, statsmodels and krippendorff, on real data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr, t
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa
from statsmodels.stats.proportion import proportion_confint

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.cli.test_calibrate import calibration
from tests.tirjudge.judge_command import command, write_rows
from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.raters import ranked
from tirjudge.evaluation.scoring import compare, score
from tirjudge.evaluation.stored_outputs.columns import VerdictColumns
from tirjudge.evaluation.stored_outputs.reading import open_replay

PEOPLE, JUDGE = "pandalm/testset-v1.json", "judgelrm/results_judgelrm3b.json"
SIGN = {"0": 0, "1": 1, "2": -1}
ARMORM = "rmb/armorm-pairwise-helpfulness.json"


def figures(*arguments: object, protocol: str = "ratings") -> dict[str, Any]:
    done = command("score", *arguments, "--json", code=0)
    found: dict[str, Any] = next(one for one in json.loads(done.stdout) if one["protocol"] == protocol)
    return {name: one["value"] for name, one in found["figures"].items()} | {"full": found["figures"]}


def preferences() -> list[dict[str, Any]]:
    """JudgeLRM-3B's difference of scores on PandaLM's pairs, and what each annotator prefers."""
    people = {str(row["idx"]): row for row in json.loads(benchmark_file(PEOPLE).read_text())}
    rows = []
    for row in open_replay(benchmark_file(JUDGE)):
        scores = row.votes[0].scores
        signs = {f"annotator{n}": SIGN[str(people[row.id][f"annotator{n}"])] for n in (1, 2, 3)}
        rows.append({"id": row.id, "margin": scores[0] - scores[1] if scores else None, **signs})
    return rows


def test_ratings_beside_scipy_sklearn_and_krippendorff(tmp_path: Path) -> None:
    rows = preferences()
    file = write_rows(tmp_path / "ratings.jsonl", rows)
    known = [row for row in rows if row["margin"] is not None]
    margins = np.array([row["margin"] for row in known])
    people = np.array([[row[f"annotator{n}"] for row in known] for n in (1, 2, 3)])
    one = figures(file, "--column", "rating=margin", "--column", "label=annotator1")
    assert one["Spearman"] == pytest.approx(spearmanr(margins, people[0]).statistic)
    assert one["Kendall"] == pytest.approx(kendalltau(margins, people[0]).statistic)
    scale = [*range(-9, 10)]
    for weights in ("quadratic", "linear"):
        peer = cohen_kappa_score(margins.astype(int), people[0], labels=scale, weights=weights)
        assert one[f"{weights} kappa"] == pytest.approx(peer)
    several = figures(file, "--column", "rating=margin", "--column", "label=annotator1,annotator2,annotator3")
    both = np.vstack([margins, people])
    assert several["Spearman"] == pytest.approx(spearmanr(margins, people.mean(axis=0)).statistic)
    for name, raters in (("alpha of judge and people", both), ("alpha of people", people)):
        assert several[name] == pytest.approx(krippendorff.alpha(raters, level_of_measurement="ordinal"))
    differences = margins - people.mean(axis=0)
    found = several["full"]["judge minus people"]
    error = differences.std(ddof=1) / np.sqrt(len(known))
    assert found["value"] == pytest.approx(differences.mean())
    assert found["high"] == pytest.approx(differences.mean() + t.ppf(0.975, len(known) - 1) * error, abs=1e-5)
    draws = np.random.default_rng(0).integers(len(known), size=(1000, len(known)))
    resampled = {
        "Spearman": [spearmanr(margins[one], people.mean(axis=0)[one]).statistic for one in draws],
        "alpha of people": [
            krippendorff.alpha(people[:, one], level_of_measurement="ordinal") for one in draws[:400]
        ],
    }
    for name, values in resampled.items():
        bounds = np.percentile(values, (2.5, 97.5))
        assert [several["full"][name][end] for end in ("low", "high")] == pytest.approx(bounds, abs=0.007)


@pytest.mark.slow
def test_scores_with_many_levels_are_correlated(tmp_path: Path) -> None:
    rows = json.loads(benchmark_file(ARMORM).read_text())
    chosen, rejected = (np.array([row[name] for row in rows]) for name in ("chosen_reward", "reject_reward"))
    found = figures(
        benchmark_file(ARMORM), "--column", "rating=chosen_reward", "--column", "label=reject_reward"
    )
    assert found["Spearman"] == pytest.approx(spearmanr(chosen, rejected).statistic)
    assert found["Kendall"] == pytest.approx(kendalltau(chosen, rejected).statistic)
    assert found["full"]["Kendall"]["low"] < found["Kendall"] < found["full"]["Kendall"]["high"]
    few = write_rows(tmp_path / "few.jsonl", rows[:99])
    found = figures(few, "--column", "rating=chosen_reward", "--column", "label=reject_reward")
    assert found["full"]["Kendall"]["no_interval"] == "fewer than 100 rows"
    assert found["full"]["Spearman"]["low"] is None


@pytest.mark.slow
def test_ratings_with_few_levels_are_compared_with_ratings_with_many(tmp_path: Path) -> None:
    rows = [{"id": str(n), "few": n % 5, "many": n % 5 + n % 100 / 50, "people": n % 3} for n in range(120)]
    file = write_rows(tmp_path / "ratings.jsonl", rows)
    protocol = open_protocol("ratings")
    few, many = (
        protocol.units(open_replay(file, columns=VerdictColumns.parse(["label=people", f"rating={name}"])))
        for name in ("few", "many")
    )
    forth, back = compare(protocol, few, many, resamples=50), compare(protocol, many, few, resamples=50)
    for name in ("Spearman", "Kendall"):
        there, again = forth.differences[name], back.differences[name]
        assert there.low < there.value < there.high
        assert (there.value, there.low, there.high) == pytest.approx((-again.value, -again.high, -again.low))


@pytest.mark.parametrize("levels", range(2, 8))
def test_a_perfect_correlation_has_no_interval_and_says_so(levels: int) -> None:
    for count in range(100, 106):
        ratings = np.random.default_rng(count).integers(levels, size=count)
        rows = [
            JudgedRow(
                id=str(n),
                votes=(Vote(best=(0,), scores={0: float(one)}),),
                candidates=1,
                ratings=(int(one), int(one)),
            )
            for n, one in enumerate(ratings)
        ]
        found = score(open_protocol("ratings"), rows).estimates
        for name in ("Spearman", "Kendall", "quadratic kappa", "alpha of judge and people"):
            assert found[name].value == pytest.approx(1)
            assert np.isnan(found[name].low)
            assert found[name].no_interval == "no row departs from a perfect correlation"


def test_several_ratings_of_a_response_are_samples(tmp_path: Path) -> None:
    rows = [{"id": str(n), "runs": [n % 5, (n + (n % 4 == 0)) % 5]} for n in range(100)]
    found = figures(write_rows(tmp_path / "runs.jsonl", rows), "--column", "rating=runs")
    assert found["flip rate"] == 0.25
    assert found["mean score"] == np.mean([row["runs"] for row in rows])
    assert "Spearman" not in found


def test_scotts_pi_and_the_alpha_of_classes() -> None:
    found = figures(benchmark_file(JUDGE), "--protocol", "kappa", protocol="kappa")
    people = json.loads(benchmark_file(PEOPLE).read_text())
    annotators = np.array([[int(row[f"annotator{n}"]) for row in people] for n in (1, 2, 3)])
    peer = krippendorff.alpha(annotators, level_of_measurement="nominal")
    assert found["alpha of annotators"] == pytest.approx(peer)
    said, label = [], []
    for row in open_replay(benchmark_file(JUDGE)):
        choice = row.votes[0].choice
        said.append(2 if choice is None else choice)
        label.append(2 if row.label is None else row.label)
    # Fleiss' kappa of two raters is Scott's pi.
    table = aggregate_raters(np.array([said, label]).T)[0]
    assert found["Scott's pi of judge and label"] == pytest.approx(fleiss_kappa(table, method="fleiss"))
    alphas = calibration("score", benchmark_file(JUDGE), "--calibrate", benchmark_file(PEOPLE))["alpha"]
    judge = np.where(np.array(said) == 2, 0, np.array(said) + 1)
    with_judge = krippendorff.alpha(np.vstack([judge, annotators]), level_of_measurement="nominal")
    assert alphas["the annotators"]["value"] == pytest.approx(peer)
    assert alphas["the judge and the annotators"]["value"] == pytest.approx(with_judge)


def test_best_of_k_from_a_list_of_scores(tmp_path: Path) -> None:
    """Two of three subsets' rows by hand: 1/2 for a tie of two, and 0 where a wrong response is higher."""
    columns = {
        "id": ["1", "2", "3", "tied:0", "ref:0"],
        "subset": ["Math", "Math", "Focus", "Ties", "Ties"],
        "scores": [[3, 1, 2, 0], [2, 2, 1, 0], [1, 4, 0, 0], [5, 5, 1], [4, 1]],
        "num_correct": [1, 1, 1, 2, 1],
    }
    file = tmp_path / "model.json"
    file.write_text(json.dumps(columns))
    words = (
        file,
        "--column",
        "scores=scores",
        "--column",
        "domain=subset",
        "--column",
        "correct=num_correct",
    )
    found = figures(*words, protocol="rewardbench2")
    assert (found["Math"], found["Focus"], found["mean of subsets"]) == (0.75, 0.0, 0.375)
    ties = figures(*words, protocol="rewardbench2-ties")
    assert (ties["accuracy on tied"], ties["accuracy on ref"]) == (1.0, 1.0)
    rows = [
        {"id": "1", "a": 0.5, "b": 0.1, "c": 0.9, "best": "C"},
        {"id": "2", "a": 3, "b": "", "c": 1, "best": "B"},
    ]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    found = figures(file, "--column", "scores=a,b,c", "--column", "label=best", protocol="tir")
    assert found["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("row", "words", "message"),
    [
        ({"r": "high"}, ("rating=r",), 'r is "high", not a finite number'),
        (
            {"r": 1, "p": "A"},
            ("rating=r", "prediction=p"),
            "is a rating of one response: leave out prediction",
        ),
        ({"s": [1]}, ("scores=s",), "s has 1 scores: rating=PLACE reads ratings"),
        ({"s": [1, 2], "n": 2}, ("scores=s", "correct=n"), "n is 2.0, and there are 2 responses"),
        ({"s": [1, True]}, ("scores=s",), "s is true, not a finite number"),
        ({"s": 4, "label": "A"}, ("scores=s",), "s has 1 scores"),
        ({"s": [1, 2], "label": "C"}, ("scores=s",), 'label is "C", which is no letter from A to B'),
        ({"r": [[1]], "label": 1}, ("rating=r",), "r is [1], not a finite number"),
    ],
)
def test_misuse_is_refused_in_one_line(
    row: Any, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    places = [word for one in words for word in ("--column", one)]
    done = command("score", write_rows(tmp_path / "rows.jsonl", [row]), *places)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_pearson_and_the_mean_of_prompts_beside_scipy(tmp_path: Path) -> None:
    """400 rows of 40 prompts whose means differ: within a prompt the judge knows little."""
    draw = np.random.default_rng(3)
    prompt = np.arange(400) // 10
    people = draw.integers(1, 6, 40)[prompt] + draw.integers(0, 3, 400)
    judge = people + draw.normal(0, 2, 400).round(2)
    rows = [
        {"id": n, "prompt": f"q{prompt[n]}", "r": float(judge[n]), "l": int(people[n])} for n in range(400)
    ]
    found = figures(write_rows(tmp_path / "r.jsonl", rows), "--column", "rating=r", "--column", "label=l")
    assert found["Pearson"] == pytest.approx(pearsonr(judge, people).statistic)
    peers = {"Pearson": pearsonr, "Spearman": spearmanr, "Kendall": kendalltau}
    for name, peer in peers.items():
        values = [peer(judge[prompt == one], people[prompt == one]).statistic for one in range(40)]
        figure = found["full"][f"mean {name} over prompts"]
        assert (figure["value"], figure["n"]) == (pytest.approx(np.mean(values)), 40)
        # Wilson's interval of the mean of (1 + correlation) / 2, with one of 1 and one of -1 more,
        # and as many rows as vary as much (Dean and Pagano 2015).
        shares = np.append((1 + np.array(values)) / 2, (0, 1))
        rate = float(shares.mean())
        size = rate * (1 - rate) * 42**2 / float(((shares - rate) ** 2).sum())
        bounds = proportion_confint(shares[:-2].mean() * size, size, method="wilson")
        expected = [2 * bound - 1 for bound in bounds]
        assert [figure["low"], figure["high"]] == pytest.approx(expected, abs=2e-3)


@pytest.mark.slow
def test_the_interval_of_pearson_is_fishers_for_normal_values(tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    people = draw.normal(size=500)
    judge = 0.8 * people + 0.6 * draw.normal(size=500)
    rows = [{"id": n, "r": float(judge[n]), "l": float(people[n])} for n in range(500)]
    run = write_rows(tmp_path / "r.jsonl", rows)
    found = figures(run, "--column", "rating=r", "--column", "label=l")["full"]["Pearson"]
    low, high = pearsonr(judge, people).confidence_interval()
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize("levels", [3, 7, 40])
def test_the_influence_of_ranks_is_the_derivative_of_the_correlation(levels: int) -> None:
    """Beside the jackknife of scipy's correlation, with and without ties."""
    draw = np.random.default_rng(levels)
    one = draw.integers(0, levels, 400).astype(float)
    other = (one + draw.integers(0, levels, 400)) if levels < 40 else one + draw.normal(0, 10, 400)
    value, errors = ranked(one, other)
    assert value == pytest.approx(spearmanr(one, other).statistic)
    rest = [spearmanr(np.delete(one, n), np.delete(other, n)).statistic for n in range(400)]
    jackknife = math.sqrt(399 / 400 * ((np.array(rest) - np.mean(rest)) ** 2).sum())
    assert math.sqrt(errors @ errors) == pytest.approx(jackknife, rel=0.02)
