"""Dynamic sampling with a real judge format, and batches without any row in the loss."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.rows import every
from tests.training.conftest import small_rl, train_and_save
from tests.training.one_batch import ONE_BATCH
from tests.training.train_command import train
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import (
    By,
    Call,
    Environment,
    Episode,
    JudgeTask,
    Message,
    Reward,
    Score,
    Segment,
    StopReason,
    Trajectory,
    Verdict,
    View,
)
from tirjudge_environments.formats.tir_comparison import TirPairwise
from tirjudge_environments.formats.tir_pointwise import TirPointwise
from tirjudge_sandbox import Execution, Program, Status
from tirjudge_training.rl import training_loop
from tirjudge_training.rl.dynamic_sampling import FormattedTask, SampledBatch, gather
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.trl_rollout import batch_rows

SIZE = 4
RIGHT, WRONG = "<preference>A</preference>", "<preference>B</preference>"
DOWN, TOO_LONG = "down", "too long"
STOPS = {DOWN: StopReason.SANDBOX_DOWN, TOO_LONG: StopReason.PROMPT_TOO_LONG}


class Replay:
    """Rollouts with scripted answers: (task id, view, sample) to the model's text."""

    def __init__(self, environment: Environment, answer: Callable[[str, str, int], str]) -> None:
        self.environment, self.answer = environment, answer

    async def score(self, group: Sequence[Episode]) -> list[tuple[Score, ...]]:
        return self.environment.score(group, {})

    async def episode(self, task: JudgeTask, sample: int = 0) -> Episode:
        views = self.environment.views(task)
        return Episode(task, sample, tuple(self._trajectory(task, view, sample) for view in views))

    def _trajectory(self, task: JudgeTask, view: View, sample: int) -> Trajectory:
        text = self.answer(task.id, view.name, sample)
        stop = STOPS.get(text, StopReason.VERDICT)
        ids = tuple(text.encode())
        return Trajectory(
            view=view,
            sample=sample,
            prompt=self.environment.prompt(task, view),
            prompt_ids=(1, 2, 3),
            segments=(Segment(by=By.MODEL, text=text, ids=ids, logprobs=(-0.5,) * len(ids)),),
            calls=(),
            stop=stop,
            verdict=Verdict(choice=0) if stop is StopReason.VERDICT else None,
        )


def pair(name: str) -> FormattedTask:
    return FormattedTask(
        "pair", JudgeTask(id=name, prompt=(Message("user", "q"),), candidates=("x", "y"), label=0)
    )


def single(name: str) -> FormattedTask:
    return FormattedTask("single", pair(name).task)


async def collect(
    answers: dict[str, list[str]],
    rounds: dict[int, list[FormattedTask]],
    *,
    slots: int = 2,
    **options: object,
) -> SampledBatch:
    def answer(task: str, view: str, sample: int) -> str:
        return answers[f"{task}/{view}" if f"{task}/{view}" in answers else task][sample]

    rollouts = {
        "pair": Replay(TirPairwise(order="given"), answer),
        "both": Replay(TirPairwise(order="both"), answer),
        "single": Replay(TirPointwise(), answer),
    }
    return await gather(
        lambda number, position: rounds[number][position % len(rounds[number])],
        rollouts,
        slots=slots,
        size=SIZE,
        replacement_rounds=len(rounds) - 1,
        **options,  # type: ignore[arg-type]
    )


def kept(batch: SampledBatch) -> list[str]:
    """Return the ids of the tasks whose groups enter the loss."""
    tasks = (*batch.first, *batch.replacements)
    return [
        rollouts.formatted.task.id for rollouts in tasks for group in rollouts.groups if group in batch.kept
    ]


MIXED = [RIGHT, WRONG, RIGHT, RIGHT]
UNTIDILY_RIGHT = [RIGHT, RIGHT + " trailing", RIGHT, RIGHT]


async def test_a_group_of_right_answers_is_dropped_even_if_its_rewards_differ() -> None:
    answers = {"right": UNTIDILY_RIGHT, "mixed": MIXED}
    rounds = {0: [pair("right"), pair("mixed")]}
    batch = await collect(answers, rounds)
    assert [score.total for score in batch.first[0].groups[0].scores] == [1.0, 0.1, 1.0, 1.0]
    assert kept(batch) == ["mixed"]
    assert kept(await collect(answers, rounds, by="reward")) == ["right", "mixed"]


async def test_progress_counts_rollouts_and_their_tokens_and_goes_on_while_none_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late(self: Replay, task: JudgeTask, sample: int = 0) -> Episode:
        await asyncio.sleep(1.2 if sample == 0 else 0)
        return await episode(self, task, sample)

    episode, calls = Replay.episode, list[tuple[int, int, int]]()
    monkeypatch.setattr(Replay, "episode", late)
    answers = {"right": [RIGHT] * 4, "wrong": [WRONG] * 4, "mixed": MIXED}
    rounds = {0: [pair("right"), pair("wrong")], 1: [pair("mixed")]}
    await collect(answers, rounds, progress=lambda *counts: calls.append(counts))
    ended = [(tokens, rollouts) for number, tokens, rollouts in calls if number]
    assert [rollouts for _, rollouts in ended] == [8] * 8 + [16] * 8
    assert sum(tokens for tokens, _ in ended[:8]) == 8 * len(RIGHT), "a token is a byte"
    assert (0, 0, 8) in calls[6:8], "after a second of waiting"


async def test_replacements_are_sampled_until_the_batch_is_full() -> None:
    answers = {"right": [RIGHT] * 4, "wrong": [WRONG] * 4, "mixed": MIXED, "late": MIXED}
    rounds = {
        0: [pair("right"), pair("wrong")],
        1: [pair("mixed"), pair("right")],
        2: [pair("late")],
        3: [pair("never")],
    }
    batch = await collect(answers, rounds)
    assert kept(batch) == ["mixed", "late"]
    assert [rollouts.formatted.task.id for rollouts in batch.replacements] == ["mixed", "right", "late"]
    assert batch.rounds == 2


async def test_a_short_batch_is_filled_with_masked_rows() -> None:
    batch = await collect({"right": [RIGHT] * 4, "mixed": MIXED}, {0: [pair("right"), pair("mixed")]})
    rows = batch_rows(batch, slots=2, size=SIZE, blank=9)
    assert len(rows) == 2 * SIZE
    assert [any(row.mask) for row in rows] == [True] * 4 + [False] * 4
    assert [row.advantage for row in rows] == pytest.approx([0.5, -1.5, 0.5, 0.5, 0, 0, 0, 0])


async def test_a_verdict_that_cannot_change_the_reward_does_not_count() -> None:
    """It counts while a tool call is left: the judge could have run another program in its place."""
    batch = await collect({"mixed": MIXED}, {0: [pair("mixed")]}, slots=1)
    [group] = batch.kept
    program = Segment(by=By.MODEL, text="", ids=(5, 6, 7), logprobs=(-1.0, -2.0, -3.0))
    output = Segment(by=By.SANDBOX, text="", ids=(8, 8))
    call = Call(Program(source=""), Execution(status=Status.OK))
    trajectories = tuple(
        replace(one, segments=(program, output, *one.segments), calls=(call,)) for one in group.trajectories
    )
    right, wrong, *others = group.scores
    group = replace(group, trajectories=trajectories, scores=(right, replace(wrong, settled=True), *others))
    batch = replace(batch, kept=(group,))
    verdict = len(group.trajectories[0].segments[-1].ids or ())
    counted, settled, *_ = batch_rows(batch, slots=1, size=SIZE, blank=9, tool_calls=1)
    assert counted.mask == (1, 1, 1, 0, 0) + (1,) * verdict
    assert settled.mask == (1, 1, 1, 0, 0) + (0,) * verdict
    assert settled.logprobs == (-1.0, -2.0, -3.0, 0.0, 0.0) + (0.0,) * verdict
    assert settled.completion_ids == counted.completion_ids[:5] + group.trajectories[1].segments[-1].ids
    assert settled.advantage < 0
    going_on = batch_rows(batch, slots=1, size=SIZE, blank=9, tool_calls=2)
    assert going_on[1].mask == (1, 1, 1, 0, 0) + (1,) * verdict
    first, second, *rest = trajectories
    no_room = replace(second, segments=(program,), stop=StopReason.TOKEN_BUDGET, verdict=None)
    group = replace(group, trajectories=(first, no_room, *rest))
    ended = batch_rows(replace(batch, kept=(group,)), slots=1, size=SIZE, blank=9, tool_calls=1)
    assert ended[1].mask == (1, 1, 1), "the dialogue ended with its program"


async def test_an_unscored_episode_is_sampled_again_and_excluded_if_it_fails_again() -> None:
    answers = {"a": [RIGHT, DOWN, WRONG, WRONG, DOWN, RIGHT], "b": [RIGHT, WRONG, DOWN, WRONG] + [DOWN] * 4}
    batch = await collect(answers, {0: [pair("a"), pair("b")]}, resamples=1)
    again, failed = (rollouts.groups[0] for rollouts in batch.first)
    assert [t.sample for t in again.trajectories] == [0, 5, 2, 3]
    assert again.rewards == [1.0, 1.0, 0.0, 0.0]
    assert failed.rewards == [1.0, 0.0, None, 0.0]
    rows = batch_rows(batch, slots=2, size=SIZE, blank=9)[SIZE:]
    assert [any(row.mask) for row in rows] == [True, True, False, True]
    assert [row.advantage for row in rows] == pytest.approx([1.1547, -0.57735, 0, -0.57735], abs=1e-4)


async def test_an_episode_that_would_have_no_score_again_is_not_sampled_again() -> None:
    """A prompt that is too long stays so, and a task without a label never has a score."""
    long, tie = single("long"), pair("tie")
    tie = replace(tie, task=replace(tie.task, label=None))
    answers = {"a": MIXED, "tie": MIXED, "long/0": ["<score>9</score>"] * 4, "long/1": [TOO_LONG] * 4}
    batch = await collect(answers, {0: [pair("a"), tie, long]}, slots=4, resamples=2)
    assert [rollouts.resampled for rollouts in batch.first] == [0, 0, 0]
    assert [any(one.groups[0].rewards) for one in batch.first] == [True, False, False]


async def test_a_batch_without_any_score_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"none of 8 rollouts could be scored, .*: sandbox_down"):
        await collect({"a": [DOWN] * 99}, {0: [pair("a")]})


async def test_the_views_of_a_task_stay_together() -> None:
    """A pointwise task takes two slots; with one left it is skipped for a task that fits."""
    scores = ["<score>9</score>", "<score>2</score>"]
    answers = {
        "first": MIXED,
        "one/0": [scores[0]] * 4,
        "one/1": [scores[1], scores[0], scores[1], scores[1]],
        "two/0": [scores[0]] * 4,
        "two/1": [scores[1]] * 4,
        "last": MIXED,
    }
    order = [pair("first"), single("one"), single("two"), pair("last")]
    batch = await collect(answers, {0: order}, slots=4)
    assert [rollouts.formatted.task.id for rollouts in batch.first] == ["first", "one", "last"]
    assert kept(batch) == ["first", "one", "one", "last"]
    linked = batch.first[1].groups
    assert linked[0].rewards == linked[1].rewards == [1.0, 0.0, 1.0, 1.0]


STEPS, GROUPS = 5, 4
CONFIG = small_rl(steps=STEPS, groups=GROUPS, beta=0.0, replacement_rounds=0, keep_checkpoints=STEPS)


class AllEqual:
    """A judge whose verdicts are all right, or all wrong."""

    def __init__(self, environment: Environment, right: bool) -> None:
        self._environment, self._right = environment, right

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def score(self, group: Any, answers: Any) -> Any:
        found = {"total": float(self._right), "right": self._right, "teaches": self._right}
        scores = self._environment.score(group, answers)
        return [tuple(replace(s, **found) if isinstance(s, Reward) else s for s in row) for row in scores]


@pytest.mark.parametrize("right", every(2, [True, False]))
def test_a_batch_without_a_row_in_the_loss_leaves_the_weights_alone(
    right: bool, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's momentum of the first batch would move them in the four batches after it."""
    steps: list[int] = []

    class Spoilt(Engine):
        def rollouts(self, seed: int, *config: Any) -> Any:
            steps.append(seed)
            if len(steps) == 2:
                judges = self.environments.items()
                self.environments = {name: AllEqual(judge, right) for name, judge in judges}
            return super().rollouts(seed, *config)

    monkeypatch.setattr(training_loop, "Engine", Spoilt)
    said: list[str] = []
    train_and_save(tiny_model, tmp_path, CONFIG, say=said.append)
    rows = list(read_lines(tmp_path / "metrics.jsonl"))
    assert [row["steps/skipped"] for row in rows] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert [row["groups/in_loss"] > 0 for row in rows] == [True, False, False, False, False]
    start, first, last = (
        load_file(folder / "model.safetensors")
        for folder in (tiny_model, tmp_path / "checkpoints" / "checkpoint-1", tmp_path / "model")
    )
    assert any(not first[name].equal(start[name]) for name in start)
    assert all(first[name].equal(last[name]) for name in last)
    kind = "all_right" if right else "all_wrong"
    assert all(row[f"groups/{kind}"] == GROUPS for row in rows[1:])
    (line,) = [one for one in said if "nothing to learn" in one]
    assert line.startswith("step 4 of 5: nothing to learn from 3 batches in a row")
    assert f"({3 * GROUPS} {kind.replace('_', ' ')})" in line


@pytest.mark.slow
def test_a_run_with_nothing_in_any_loss_ends_without_a_model(roomy_model: Path, tmp_path: Path) -> None:
    """In eight tokens there is no verdict, so that every rollout is wrong; one of the rows is held back."""
    data = tmp_path / "rows.jsonl"
    lines = ({"prompt": f"q{n}", "responses": ["a", "b"], "label": 0} for n in range(4))
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--recipe", "rm-r1-distilled-7b", "--model", str(roomy_model), "--data", str(data)]
    for setting in (*ONE_BATCH, "model.enable_thinking=false", "rl.filter=correctness"):
        words += ["--set", setting]
    said = []
    for _ in range(2):  # The same command comes to the same end.
        done = train(*words, "--output", str(tmp_path / "run"))
        assert done.exit_code == 1
        said.append(done.stderr.splitlines()[-1])
        assert "tirjudge train: rl: nothing to learn from 2 batches in a row" in said[-1]
        assert "(3 all wrong)" in said[-1]
        assert said[-1].endswith(f"no model is written, and {roomy_model} is the one to use")
        assert not (tmp_path / "run" / "rl" / "model").exists()
    assert said[0] == said[1]
