"""Single responses with people's ratings or pass and fail: judged, counted, shown, reported and compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows

SCORES = [9, 8, 2, 7, 3, 5, 9, 1, 6, 4, 10, 2]
"""The judge's scores, from 1 to 10."""
PASSED = [1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0]
"""From 6 on a score passes, so that rows 5 and 8 are wrong."""
STARS = [5, 4, 1, 4, 2, 3, 5, 1, 3, 2, 1, 1]
"""Row 10 has a score of 10, which is 5 stars, and one star."""


@pytest.fixture(autouse=True)
def scores(endpoint: EndpointServer) -> None:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        number = int(re.findall(r"answer (\d+)!", body["messages"][-1]["content"])[0])
        return chat(f"<score>{SCORES[number]}</score>")

    endpoint.script = script


def rows(labels: list[Any]) -> list[dict[str, Any]]:
    return [
        {"id": f"r{n}", "prompt": f"p{n}", "response": f"answer {n}!", "label": label}
        for n, label in enumerate(labels)
    ]


def judged(
    folder: Path,
    endpoint: EndpointServer,
    labels: list[Any],
    *options: str,
    name: str = "rows",
    code: int | None = None,
) -> Any:
    write_rows(folder / f"{name}.jsonl", rows(labels))
    return judge(folder, f"{name}.jsonl", "--no-tools", *options, *through(endpoint), code=code)


@pytest.mark.parametrize(
    "spelling",
    [["fail", "pass"], ["No", "Yes"], [False, True], ["0", "1"], [0, 1], [0.0, 1.0], ["wrong", "right"]],
)
def test_pass_and_fail_have_an_accuracy_and_kappa(
    tmp_path: Path, endpoint: EndpointServer, spelling: list[Any]
) -> None:
    run = judged(tmp_path, endpoint, [spelling[one] for one in PASSED], code=0)
    kappa = cohen_kappa_score(PASSED, [int(score >= 6) for score in SCORES])
    assert f"kappa     {kappa:.2f} is Cohen's, of pass and fail" in run.stdout
    assert "accuracy  83.3% [55.2%, 95.3%], n = 12" in run.stdout
    wrong = invoke("show", "rows.verdicts.jsonl", "--wrong", "--brief", folder=tmp_path)
    assert [line.split()[0] for line in wrong.stdout.splitlines()] == ["r5", "r8"]
    row = next(row for row in results(tmp_path / "rows.verdicts.jsonl") if row["id"] == "r5")
    assert (row["label"], row["rating"], row["correct"], row["satisfied_from"]) == (None, True, 0.0, 6.0)
    shown = invoke("show", "rows.verdicts.jsonl", "r5", folder=tmp_path).stdout
    assert "people say pass, and the score passes from 6: wrong" in shown


def test_the_threshold_of_pass_can_be_chosen(tmp_path: Path, endpoint: EndpointServer) -> None:
    run = judged(tmp_path, endpoint, PASSED, "--satisfied-from", "5")
    assert "accuracy  91.7%" in run.stdout
    assert (
        judged(tmp_path, endpoint, PASSED, "--satisfied-from", "5", "--min-accuracy", "0.95").returncode == 1
    )


def test_ratings_have_a_rank_correlation_and_weighted_kappa(tmp_path: Path, endpoint: EndpointServer) -> None:
    run = judged(tmp_path, endpoint, STARS, code=0)
    assert "accuracy" not in run.stdout
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("ratings")]
    rho = spearmanr(SCORES, STARS).statistic
    # Scores from 1 to 10 on the scale from 1 to 5: quadratic weighted kappa by its definition.
    own = 1 + (np.array(SCORES) - 1) * 4 / 9
    apart = ((own - STARS) ** 2).mean()
    by_chance = ((own[:, None] - np.array(STARS)) ** 2).mean()
    assert f"Spearman {rho:.2f}, quadratic kappa {1 - apart / by_chance:.2f}" in line
    assert f"judge minus people {(own - STARS).mean():.2f} [" in line
    wrong = invoke("show", "rows.verdicts.jsonl", "--wrong", "--brief", folder=tmp_path).stdout
    assert [line.split()[0] for line in wrong.splitlines()] == ["r10"]
    assert "rated 1" in wrong
    assert "Spearman" in invoke("show", "rows.verdicts.jsonl", folder=tmp_path).stdout
    for least, code in (("0.6", 0), ("0.9", 1)):
        again = judged(tmp_path, endpoint, STARS, "--min-accuracy", least)
        assert again.returncode == code
    assert (
        f"the rank correlation with people's ratings is {rho:.2f}, and --min-accuracy is 0.9" in again.stderr
    )
    record = json.loads(judged(tmp_path, endpoint, STARS, "--json").stdout)
    found = record["agreement_with_people"]["ratings"]["figures"]["Spearman"]["value"]
    assert found == pytest.approx(rho)


def test_a_scale_from_1_to_10_is_the_judges_own(tmp_path: Path, endpoint: EndpointServer) -> None:
    tens = [2 * one for one in STARS]
    run = judged(tmp_path, endpoint, tens)
    own, people = np.array(SCORES), np.array(tens)
    kappa = 1 - ((own - people) ** 2).mean() / ((own[:, None] - people) ** 2).mean()
    assert f"quadratic kappa {kappa:.2f}" in run.stdout


@pytest.mark.slow
def test_two_runs_are_compared_and_reported(tmp_path: Path, endpoint: EndpointServer) -> None:
    for labels, figure in ((PASSED, "accuracy"), (STARS, "Spearman")):
        assert judged(tmp_path, endpoint, labels, "--overwrite", name="one").returncode == 0
        assert judged(tmp_path, endpoint, labels, "--overwrite", "--seed", "1", name="two").returncode == 0
        compared = invoke("compare", "one.verdicts.jsonl", "two.verdicts.jsonl", folder=tmp_path)
        assert (compared.returncode, figure in compared.stdout) == (0, True), compared.stderr
        invoke("report", "one.verdicts.jsonl", folder=tmp_path, code=0)
        assert figure in (tmp_path / "report.html").read_text()
    scored = invoke("score", "one.verdicts.jsonl", folder=tmp_path)
    assert "Spearman" in scored.stdout


def test_labels_beside_the_run_calibrate_it(tmp_path: Path, endpoint: EndpointServer) -> None:
    assert judged(tmp_path, endpoint, [None] * len(PASSED)).returncode == 0
    write_rows(tmp_path / "labels.jsonl", [{"id": f"r{n}", "label": one} for n, one in enumerate(PASSED)])
    run = invoke("score", "rows.verdicts.jsonl", "--calibrate", "labels.jsonl", folder=tmp_path, code=0)
    assert "83.3" in run.stdout
    words = [{"id": f"r{n}", "label": ("fail", "pass")[one]} for n, one in enumerate(PASSED)]
    write_rows(tmp_path / "labels.jsonl", words)
    scored = invoke("score", "rows.verdicts.jsonl", "--labels", "labels.jsonl", folder=tmp_path)
    assert "accuracy 83.33 %" in scored.stdout


def test_a_sentinel_is_left_out_and_unreadable_labels_are_named(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    labels = ["n.a.", "so-so", *STARS[2:]]
    refused = judged(tmp_path, endpoint, labels[:2], code=2)
    advice = "--labels n.a.=MEANING,so-so=MEANING, where MEANING is pass, fail or a number, or nothing"
    assert advice in refused.stderr
    run = judged(tmp_path, endpoint, [-1, *STARS[1:]], "--labels=-1=", code=0)
    assert "n = 11, protocol ratings" in run.stdout
