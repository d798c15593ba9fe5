"""A run whose reward asks a MetaJudge stops without it, resumes, and can be scored again from its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure, serving
from tests.training.conftest import VERDICTS
from tirjudge.judging.meta_judge import MetaJudgeConfig, NotAnswered
from tirjudge.storage.run_folder import RunFolder, read_lines
from tirjudge_environments import (
    Episode,
    JudgeTask,
    Malformed,
    Message,
    Prompt,
    Rationale,
    Reward,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.reinforcement import Reinforcement

CONFIG = RlConfig(
    steps=2, groups=2, samples=4, loss="sequence", beta=0, filter="none", max_tokens=60, checkpoint_every=1
)


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    with serving() as server:
        server.script = found
        yield server


class TwoWords(Rationale):
    """The rationale judge for a model with two answers: a short prompt, and fixed reasons."""

    def prompt(self, task: JudgeTask, view: View) -> Prompt:
        return Prompt(messages=(Message("user", " ".join(task.candidates)),))

    def verdict(self, task: JudgeTask, view: View, text: str) -> Verdict | Malformed:
        choices = [choice for choice, words in enumerate(VERDICTS) if words in text]
        if not choices:
            return Malformed("neither of the two")
        return Verdict(
            choice=choices[-1], parsed={"reasons": [f"{choices[-1]}, says {task.id}"], "strength": 1}
        )


def sample_task(step: int, round_number: int, position: int) -> FormattedTask:
    """Return a task that depends on the arguments alone."""
    task = JudgeTask(
        id=f"{step}-{round_number}-{position}",
        prompt=(Message("user", "q"),),
        candidates=("good", "bad"),
        label=0,
        gold={"checklist": ("Response 2 is bad",)},
    )
    return FormattedTask("rationale", task)


def found(body: dict[str, Any]) -> Any:
    return chat("<RESULT_START>\nR1@S1: 0.50\n<RESULT_END>")


def refuses_step_1(body: dict[str, Any]) -> Any:
    return failure(401, "key revoked") if "says 1-" in question(body) else found(body)


def question(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"])


class Tasks:
    """The part of a run's data that the RL stage uses."""

    def __init__(self) -> None:
        self.environments = {"rationale": TwoWords(order="given")}

    def source(
        self, groups: int, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None
    ) -> TaskSource:
        return sample_task


def train(start: Path, folder: Path, server: EndpointServer) -> list[dict[str, Any]]:
    """Run the RL stage with a `[meta_judge]`; return its metrics."""
    asked = MetaJudgeConfig(model="meta", base_url=server.url)
    run = Run(folder, str(start), Tasks(), lambda line: None, asked)
    with RunFolder(folder) as stage:
        Reinforcement(name="rl", start=None, config=CONFIG).work(stage, run)
        return list(stage.read("metrics.jsonl"))


def test_a_run_resumes_after_its_metajudge_failed_and_repeats_no_request(
    server: EndpointServer, tiny_model: Path, tmp_path: Path
) -> None:
    whole = train(tiny_model, tmp_path / "whole", server)
    asked = [question(body) for body in server.bodies]
    assert len(set(asked)) == len(asked) > 2
    assert all(0 < row["reward/rationale"] <= 1 for row in whole)

    server.script = refuses_step_1
    with pytest.raises(NotAnswered, match=r"meta refuses all questions: .*key revoked"):
        train(tiny_model, tmp_path / "stopped", server)
    server.asked.clear()
    server.script = found
    stopped = train(tiny_model, tmp_path / "stopped", server)
    assert all("says 1-" in question(body) for body in server.bodies), (
        "the questions of step 0 are answered already"
    )
    names = ("step", "reward", "reward/correct", "reward/rationale")
    assert [[row[name] for name in names] for row in stopped] == [
        [row[name] for name in names] for row in whole
    ]


def test_a_recipe_configures_its_metajudge() -> None:
    recipe = load(Recipe, "smol", ["meta_judge.model=qwen", "meta_judge.patience=5"])
    assert recipe.meta_judge == MetaJudgeConfig(model="qwen", patience=5.0)
    with pytest.raises(BadRecipe, match=r"meta_judge\.modle"):
        load(Recipe, "smol", ["meta_judge.model=qwen", "meta_judge.modle=qwen"])


def test_the_rewards_of_a_run_follow_from_its_files(
    server: EndpointServer, tiny_model: Path, tmp_path: Path
) -> None:
    """The rewards are computed again from the stored answers, without a model."""
    train(tiny_model, tmp_path, server)
    kept = {row["key"]: row["answer"] for row in read_lines(tmp_path / "asked.jsonl")}
    judge = TwoWords(order="given")
    episodes = list(read_lines(tmp_path / "episodes.jsonl"))
    for row in episodes:
        (trajectory,) = row["trajectories"]
        task = sample_task(*map(int, row["id"].split("-"))).task
        answer = "".join(segment["text"] for segment in trajectory["segments"])
        [(score,)] = judge.score([episode(judge, task, answer)], kept)
        assert isinstance(score, Reward)
        assert {"total": score.total, "parts": score.parts} == trajectory["reward"]
    assert len(episodes) == 2 * CONFIG.groups * CONFIG.samples


def episode(judge: TwoWords, task: JudgeTask, answer: str) -> Episode:
    (view,) = judge.views(task)
    read = judge.verdict(task, view, answer)
    verdict = read if isinstance(read, Verdict) else None
    stop = StopReason.VERDICT if verdict else StopReason.MALFORMED
    prompt = judge.prompt(task, view)
    trajectory = Trajectory(
        view=view, sample=0, prompt=prompt, prompt_ids=None, segments=(), calls=(), stop=stop, verdict=verdict
    )
    return Episode(task, 0, (trajectory,))
