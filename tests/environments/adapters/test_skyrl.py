"""The SkyRL adapter: a judge in SkyRL-gym, made by its own registry."""

from __future__ import annotations

from typing import Any

import pytest
import skyrl_gym
from omegaconf import OmegaConf

from tests.environments.adapters.dialogues import (
    ROW,
    SCRIPTS,
    Outcome,
    Script,
    encoded_elsewhere,
    ours,
    outcome,
    settings,
)
from tests.environments.adapters.examples import example
from tirjudge_environments.adapters.dialogues import LinkedViews

skyrl_gym.register(id="scripted-judge", entry_point="tirjudge_environments.adapters.skyrl:JudgeEnv")
CONFIG = settings().model_dump(exclude_defaults=True)


def make(row: dict[str, Any], **changes: Any) -> Any:
    return skyrl_gym.make(
        "scripted-judge", env_config=OmegaConf.create(CONFIG | changes), extras={"extra_info": row}
    )


def played(script: Script) -> Outcome:
    """Run the loop of SkyRL's generator: feed the model's texts until the environment is done."""
    env = make(script.row, **script.changes)
    prompt, _ = env.init([])
    assert script.row["prompt"] in prompt[0]["content"]
    written, observations = [], []
    for turn in script.turns:
        written.append(turn.fenced())
        step = env.step(written[-1])
        observations += [message["content"] for message in step["observations"]]
        if step["done"]:
            break
    assert step["done"]
    return Outcome("".join(written), tuple(observations), step["reward"], step["metadata"]["parts"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
async def test_a_dialogue_is_the_same_as_in_our_engine(script: Script) -> None:
    plain = settings(**script.changes)
    expected = encoded_elsewhere(outcome(script, plain, await ours(script, plain)))
    assert played(script) == expected


def test_a_reward_over_several_views_is_refused_by_name() -> None:
    with pytest.raises(LinkedViews, match=r"SkyRL scores one rollout at a time.*JudgeRolloutFunc"):
        make(ROW, judge="tir-pointwise", options={})


def test_the_parts_are_metrics() -> None:
    env = make(ROW)
    env.step("<preference>A</preference>")
    assert env.get_metrics() == {"right": 1.0, "teaches": 1.0, "correct": 1.0, "format": 1.0, "tool": 1.0}


def test_the_example_rolls_out_a_model_that_runs_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example("skyrl_judge", monkeypatch).main()
    assert capsys.readouterr().out.splitlines() == [
        "river 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
        "garden 1.0 {'right': 1.0, 'teaches': 1.0, 'correct': 1.0, 'format': 1.0, 'tool': 1.0}",
    ]
