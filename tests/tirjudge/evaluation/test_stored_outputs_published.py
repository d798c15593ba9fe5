"""`tirjudge score` on real published files gives the published numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tirjudge.benchmark_data import benchmark_file
from tests.tirjudge.judge_command import command
from tirjudge.evaluation.stored_outputs import open_replay

PANDALM = "pandalm/testset-v1.json"
JUDGELRM = "judgelrm/results_judgelrm3b.json"
O1_MINI = "judgebench/judge-arena-hard-o1-mini.jsonl"
SKYWORK = "judgebench/judge-reward-model-skywork-gemma-2-27b.jsonl"
RM_R1 = "rm-r1/deepseek-distilled-qwen-32b"
PANDALM_7B = "pandalm/pandalm-7b-testset-v1.json"
GPT_3_5 = "pandalm/gpt-3.5-turbo-testset-v1.json"
ACCURACY = ("accuracy",)
JUDGEBENCH = (*ACCURACY, "knowledge", "reasoning", "math", "coding")
MACRO = ("agreement", "precision", "recall", "F1")


def evaluated(tmp_path: Path, *arguments: str) -> dict[str, dict[str, float]]:
    """Run `tirjudge score` and return the figures of each protocol in percent."""
    run = command(*arguments, "--json", code=0)
    return {
        record["protocol"]: {name: 100 * one["value"] for name, one in record["figures"].items()}
        for record in json.loads(run.stdout)
    }


def replayed(tmp_path: Path, name: str, protocol: str, *, labels: str = "") -> dict[str, float]:
    """Return the figures of one protocol over a published file in percent."""
    joined = ["--labels", str(benchmark_file(labels))] if labels else []
    return evaluated(tmp_path, "score", str(benchmark_file(name)), "--protocol", protocol, *joined)[protocol]


@pytest.mark.parametrize(
    ("name", "protocol", "labels", "names", "published"),
    [
        (JUDGELRM, "three-class", PANDALM, MACRO, (77.68, 74.26, 70.86, 72.12)),
        (JUDGELRM, "two-class", "", MACRO, (82.66, 82.97, 82.94, 82.66)),
        (PANDALM_7B, "three-class", PANDALM, MACRO, (66.77, 57.38, 57.50, 57.43)),
        (GPT_3_5, "three-class", PANDALM, MACRO, (71.07, 58.79, 57.36, 57.55)),
        (O1_MINI, "net-vote", "", JUDGEBENCH, (65.71, 58.44, 62.24, 82.14, 78.57)),
        (O1_MINI, "both-orders", "", ACCURACY, (58.00,)),
        (O1_MINI, "first-order", "", ACCURACY, (70.86,)),
        (O1_MINI, "second-order", "", ACCURACY, (74.57,)),
        (SKYWORK, "net-vote", "", JUDGEBENCH, (64.29, 59.74, 66.33, 83.93, 50.00)),
    ],
)
def test_stored_verdicts_give_the_published_figures(
    tmp_path: Path,
    name: str,
    protocol: str,
    labels: str,
    names: tuple[str, ...],
    published: tuple[float, ...],
) -> None:
    figures = replayed(tmp_path, name, protocol, labels=labels)
    assert tuple(round(figures[one], 2) for one in names) == published


def test_judgelrm_outputs_are_read_as_its_authors_read_them() -> None:
    path = benchmark_file(JUDGELRM)
    results = {str(row["idx"]): row["result"] for row in json.loads(path.read_text())}
    read = {row.id: row.votes[0].choice for row in open_replay(path)}
    assert {id: 0 if choice is None else choice + 1 for id, choice in read.items()} == results


def test_pandalm_annotators(tmp_path: Path) -> None:
    figures = replayed(tmp_path, PANDALM, "kappa")
    # The paper has no alpha of all annotators.
    assert {name: round(kappa) for name, kappa in figures.items() if not name.startswith("alpha")} == {
        "annotators 1 and 2": 85,
        "annotators 1 and 3": 88,
        "annotators 2 and 3": 86,
    }


def test_o1_mini_is_printed_next_to_net_votes_only(tmp_path: Path) -> None:
    """Its 65.7 is from JudgeBench's leaderboard; TIR-Judge's own models are under tir."""
    shown = {}
    for protocol in ("net-vote", "tir", "both-orders", "one-order", "first-order"):
        run = command("score", benchmark_file(O1_MINI), "--protocol", protocol, "--json", code=0)
        (record,) = json.loads(run.stdout)
        shown[protocol] = {one["model"]: round(one["value"], 3) for one in record["published"]}
    assert shown["net-vote"]["GPT-o1-mini"] == 0.657
    assert all(0.657 not in models.values() for name, models in shown.items() if name != "net-vote")
    assert shown["tir"]["TIR-Judge-Zero 8B (Pairwise)"] == 0.72
    assert not [
        model for name, models in shown.items() if name != "tir" for model in models if "TIR" in model
    ]


def test_a_reward_model_that_scores_responses_alone_prefers_no_place(tmp_path: Path) -> None:
    assert replayed(tmp_path, SKYWORK, "position")["consistency"] == 100


def test_rewardbench_sections_are_those_of_the_published_file(tmp_path: Path) -> None:
    figures = replayed(tmp_path, f"{RM_R1}/rewardbench-subsets.json", "rewardbench")
    published = json.loads(benchmark_file(f"{RM_R1}/rewardbench-sections.json").read_text())
    for section in ("Chat", "Chat Hard", "Safety", "Reasoning"):
        assert figures[section] == pytest.approx(100 * published[section])
    assert round(figures["mean of sections"], 1) == 90.9


def test_rm_r1_on_rm_bench(tmp_path: Path) -> None:
    figures = replayed(tmp_path, f"{RM_R1}/rm-bench.json", "summary")
    names = ("chat", "math", "code", "safety", "easy", "normal", "hard")
    # The paper prints 85.4 for 85.452, and so cuts where it rounds elsewhere.
    assert [round(figures[name], 1) for name in names] == [74.2, 91.8, 74.1, 95.4, 89.5, 85.5, 76.7]
    assert round(figures["mean of domains"], 1) == round(figures["mean of difficulties"], 1) == 83.9


def test_rm_r1_on_rmb(tmp_path: Path) -> None:
    figures = replayed(tmp_path, f"{RM_R1}/rmb-meta.json", "summary")
    assert round(figures["mean of four sections"], 1) == 69.8


@pytest.mark.parametrize("name", ["rmb-pairwise-helpfulness", "rmb-bon-harmlessness"])
def test_rm_r1_transcripts_are_read_as_their_authors_read_them(name: str) -> None:
    path = benchmark_file(f"{RM_R1}/{name}-transcripts.json")
    results = [row["results"] for row in json.loads(path.read_text())]
    assert [int(row.votes[0].choice == row.label) for row in open_replay(path)] == results
