"""Rows with agents' transcripts in training batches: what the judge wrote counts, token by token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.miniature.model import build_model
from tests.transcripts import COMPARE, COMPARED, ROW
from tirjudge.generation.base import Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.rollout import Rollout
from tirjudge_environments import ChatEncoder, Reward, Trajectory
from tirjudge_environments.adapters.dialogues import score_alone
from tirjudge_environments.registry import open_environment
from tirjudge_sandbox import open_sandbox
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.rl.packing import without_left_padding, written_tokens
from tirjudge_training.rl.trl_rollout import filler, rollout_tokens
from tirjudge_training.sft import IGNORED, Sample

TURNS = (
    f"I compare the calls.\n```python\n{COMPARE}```\n",
    "A asked for both cities.\n<preference>A</preference>",
)


@pytest.fixture(scope="module")
def encoder() -> ChatEncoder:
    return ChatEncoder(build_model(0)[1])


@pytest.fixture
async def rollout(tmp_path: Path, encoder: ChatEncoder) -> tuple[Trajectory, float]:
    """A scripted dialogue on a row of a training file, and its reward."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text(json.dumps({**ROW, "id": "other", "prompt": "Oslo or Bergen?"}) + "\n")
    judges = {"pairs": EnvironmentConfig(name="tir-pairwise", options={"order": "given"})}
    rows = RowData(DataConfig(train=path, validation=held_out), judges).source(0)
    rows.go_to({"next": 0, "deferred": []})
    formatted = rows(0)
    assert formatted is not None
    environment = open_environment("tir-pairwise", order="given")
    async with open_sandbox("local", preload=()) as sandbox:
        judge = Rollout(environment, ScriptedGenerator(TURNS, encoder=encoder), sandbox, sampling=Sampling())
        (trajectory,) = (await judge.episode(formatted.task)).trajectories
    score = score_alone(environment, formatted.task, trajectory)
    assert isinstance(score, Reward)
    return trajectory, score.total


@pytest.mark.slow
def test_the_mask_of_a_batch_is_one_for_the_judges_own_tokens_alone(
    rollout: tuple[Trajectory, float], encoder: ChatEncoder
) -> None:
    trajectory, reward = rollout
    prompt = list(encoder.prompt(trajectory.prompt))
    assert "[message 1: call of get_weather, id c1]" in encoder.decode(prompt)
    first, output, last = (
        list(encoder.text(text)) for text in (TURNS[0], f"```output\n{COMPARED}```\n", TURNS[1])
    )
    written = [*([0] * (len(prompt) - 1)), *([1] * len(first)), *([0] * len(output)), *([1] * len(last))]
    made = rollout_tokens(trajectory, reward)
    end = len(made.completion_ids) - len(first + output + last)
    assert end in (0, 1), "the last turn may have an end-of-sequence token"
    mask = written_tokens([made, filler(0)], len(written) + end + 3, "cpu").tolist()
    assert mask[0] == [*written, *([1] * end), 0, 0, 0]
    assert sum(mask[1]) == 0
    ids = without_left_padding(made).completion_ids
    assert list(ids[: len(written)]) == prompt[1:] + first + output + last
    assert reward == 1.0


def test_supervised_labels_ignore_the_transcripts_and_the_outputs(
    rollout: tuple[Trajectory, float], encoder: ChatEncoder
) -> None:
    sample = Sample.of(rollout[0])
    own = [token for token, label in zip(sample.ids, sample.labels, strict=True) if label != IGNORED]
    other = [token for token, label in zip(sample.ids, sample.labels, strict=True) if label == IGNORED]
    assert encoder.decode(own).startswith("".join(TURNS))
    assert (
        encoder.decode(other)
        == encoder.decode(encoder.prompt(rollout[0].prompt)) + f"```output\n{COMPARED}```\n"
    )
