"""From a corpus to a trained judge: the papers' recipes read what `tirjudge data build` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from typer.testing import CliRunner, Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.training.hub import Hub
from tests.training.one_batch import ONE_BATCH
from tirjudge.cli import app
from tirjudge.storage.run_folder import read_lines


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("TIRJUDGE_HUB_MIRROR", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return Hub(tmp_path / "hub")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def train(recipe: str, model: Path, *settings: str) -> list[dict[str, Any]]:
    """Run the recipe's command on the data that it names; return the rollouts of its RL."""
    words = [word for setting in (*ONE_BATCH, *settings) for word in ("--set", setting)]
    done = run("train", "--recipe", recipe, "--model", str(model), *words)
    assert done.exit_code == 0, done.stderr
    return list(read_lines(Path("runs") / f"{recipe}-0" / "rl" / "episodes.jsonl"))


def test_judgelrm_learns_from_its_corpus(hub: Hub, roomy_model: Path) -> None:
    place = hub.folder / "BAAI" / "JudgeLM-100K"
    place.mkdir(parents=True)
    rows = (
        {"question_body": f"q{n}", "answer1_body": "a", "answer2_body": "b", "score": [8, 3]}
        for n in range(5)
    )
    (place / "judgelm_train_100k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("data", "build", "judgelrm", "--against", "-").exit_code == 0
    episodes = train("judgelrm-7b", roomy_model)
    totals = [one["reward"]["total"] for episode in episodes for one in episode["trajectories"]]
    assert set(totals) == {-2.5}, "no answer can be parsed, so format and relation fail"


def teach(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as the first teacher, who always says A, or as the second, who is given the answer."""
    text = body["messages"][-1]["content"]
    letter = text.rpartition("The right answer is Response ")[2][:1] if body["model"] == "o3" else "A"
    return chat(f"<type>Chat</type>\n<answer>[[{letter}]]</answer>")


@pytest.mark.slow
def test_rm_r1_learns_rubrics_from_two_teachers_and_then_by_rl(
    hub: Hub, server: EndpointServer, roomy_model: Path
) -> None:
    pair = {"initial_reason_steps": "1.", "full_chosen": "good", "full_rejected": "bad"}
    rows = [{"prompt": f"q{n}", **pair} for n in range(7)]
    hub.add("xinlai/Math-Step-DPO-10K", {("default", "train"): rows})
    corpus = ("data", "build", "rm-r1", "--without", "skywork", "--without", "code-preference-pairs")
    assert run(*corpus, "--against", "-").exit_code == 0
    server.script = teach
    urls = [f"{table}.base_url={server.url}" for table in ("teacher", "teacher.corrector")]
    episodes = train("rm-r1-instruct-7b", roomy_model, "data.reserved=3", "sft.batch=2", *urls)
    folder = Path("runs") / "rm-r1-instruct-7b-0"
    lessons = list(read_lines(folder / "lessons" / "samples.jsonl"))
    assert len(lessons) == 3
    assert all(one["kept"] for one in lessons), "the second teacher corrects the mistakes of the first"
    taught, trained = {one["id"] for one in lessons}, {episode["id"] for episode in episodes}
    assert trained
    assert not taught & trained
    assert {body["model"] for body in server.bodies} == {"claude-3-7-sonnet-20250219", "o3"}


def metajudge(body: dict[str, Any]) -> dict[str, Any]:
    listed = "\n".join(f"- C{n}: Response 1 lacks part {n}" for n in range(1, 4))
    return chat(f"<RESULT_START>\nCLAIM_COUNT=3\nCLAIMS:\n{listed}\n<RESULT_END>")


def test_the_rationale_judge_learns_from_its_corpus(
    hub: Hub, server: EndpointServer, roomy_model: Path
) -> None:
    remark = {"reasoning": "better", "feedback1": "f", "feedback2": ""}
    row = {"response1": "a", "response2": "b", "overall_preference": 2, "individual_preference": [remark]}
    rows = [{"context": [{"role": "user", "content": f"q{n}"}], **row} for n in range(5)]
    hub.add("nvidia/HelpSteer3", {("preference", "train"): rows})
    server.script = metajudge
    built = run("data", "build", "rationale", "--against", "-", "--generator", f"m@{server.url}")
    assert built.exit_code == 0, built.output
    episodes = train("rationale-14b", roomy_model, "rl.epochs=1", f"meta_judge.base_url={server.url}")
    totals = [one["reward"]["total"] for episode in episodes for one in episode["trajectories"]]
    assert set(totals) == {0.0}, (
        "eight tokens of noise are no verdict: AP is 0, and the MetaJudge gets no request"
    )
