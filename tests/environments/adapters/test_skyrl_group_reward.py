"""A served judge's comparisons as the reward of SkyRL-gym, with a thread for every trajectory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import skyrl_gym
from omegaconf import OmegaConf

from tests.tirjudge.judge_server import JudgeServer, judge_serving, longest
from tirjudge.generation.scripted import ScriptedGenerator

PROMPT = [{"role": "user", "content": "Write."}]

skyrl_gym.register(id="judged-group", entry_point="tirjudge.adapters.skyrl:GroupEnv")


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(longest), tools=False) as server:
        yield server


def rewarded(served: JudgeServer, completion: str, **extras: Any) -> tuple[Any, dict[str, float]]:
    """Play one trajectory as SkyRL's generator does, in a thread of its own."""
    config = {"url": served.url, "group_size": 3, "method": "round-robin", "wait_seconds": 20}
    env = skyrl_gym.make("judged-group", env_config=OmegaConf.create(config), extras=extras)
    assert env.init(PROMPT) == (PROMPT, {})
    step = env.step(completion)
    env.close()
    return step, env.get_metrics()


def test_trajectories_of_a_group_are_compared(served: JudgeServer) -> None:
    with ThreadPoolExecutor(3) as workers:
        played = list(workers.map(lambda text: rewarded(served, text), ("xx", "x", "xxx")))
    assert [step["reward"] for step, _ in played] == [0.5, 0, 1]
    assert all(step["done"] and step["observations"] == [] for step, _ in played)
    assert played[0][1] == {"judge_calls": 1.0, "judge_ties": 0.0}


def test_a_completion_without_any_verdict_is_an_error(served: JudgeServer) -> None:
    with ThreadPoolExecutor(3) as workers:
        work = [workers.submit(rewarded, served, text, group="silent") for text in ("a?", "b?", "c?")]
    for one in work:
        with pytest.raises(RuntimeError, match="without a verdict on any comparison"):
            one.result()
