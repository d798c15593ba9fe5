"""A served judge as the reward of verl: its own configuration, loading and reward manager."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.trainer.ppo.reward import get_custom_reward_fn

from tests.tirjudge.judge_server import JudgeServer, close_clients, judge_serving
from tests.tirjudge.tiny_models import bpe_tokenizer
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import Context

LENGTH = 16
TOKENIZER = bpe_tokenizer("Mark it. xxx")


def marks(context: Context) -> str:
    """Score a response by its number of crosses; one with a question mark has no score.

    Of two responses, prefer the one with more crosses.
    """
    pair = re.findall(r"\nResponse [AB]:\n(.*)\n", context.prompt.messages[-1].content)
    if pair:
        first, second = (response.count("x") for response in pair)
        return f"<preference>{'A' if first > second else 'B'}</preference>"
    response = context.prompt.messages[-1].content.partition("\nResponse:\n")[2].partition("\n")[0]
    return "Hm." if "?" in response else f"<score>{1 + response.count('x')}</score>"


@pytest.fixture(scope="module")
def served() -> Iterator[JudgeServer]:
    with judge_serving(ScriptedGenerator(marks), tools=False) as server:
        yield server


@pytest.fixture
async def url(served: JudgeServer) -> AsyncIterator[str]:
    yield served.url
    await close_clients(served.url)


def config(url: str, *more: str, function: str = "compute_score") -> DictConfig:
    """Return verl's configuration with the options that docs/serve.md gives."""
    folder = Path(next(iter(find_spec("verl").submodule_search_locations))) / "trainer" / "config"
    options = [
        "reward.custom_reward_function.path=pkg://tirjudge.serve.verl",
        f"reward.custom_reward_function.name={function}",
        f"+reward.custom_reward_function.reward_kwargs.url={url}",
    ]
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", [*options, *more])


def rollout(response: str, **extra_info: Any) -> DataProto:
    """Return one row in the form that verl's rollout produces, padded after the response."""
    ids = TOKENIZER.encode(response)
    padding = [0] * (LENGTH - len(ids))
    mask = [1] * len(ids) + padding
    row = {
        "data_source": "ours",
        "reward_model": {"ground_truth": ""},
        "extra_info": {"question": "Mark it.", **extra_info},
    }
    return DataProto.from_dict(
        tensors={"responses": torch.tensor([ids + padding]), "attention_mask": torch.tensor([mask])},
        non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
    )


def manager(settings: DictConfig) -> Any:
    kind = get_reward_manager_cls(settings.reward.reward_manager.name)
    return kind(settings, TOKENIZER, get_custom_reward_fn(settings))


async def test_verl_gets_the_served_judges_score(url: str) -> None:
    told = await manager(config(url)).run_single(rollout("xx"))
    logged = dict.fromkeys(("judge_programs", "judge_decided", "judge_no_verdict"), 0.0)
    assert told == {"reward_score": 3.0, "reward_extra_info": {"score": 3.0, **logged}}


async def test_verl_gets_the_comparisons_of_a_group(served: JudgeServer, url: str) -> None:
    settings = config(
        url,
        "+reward.custom_reward_function.reward_kwargs.group_size=2",
        "+reward.custom_reward_function.reward_kwargs.method=pivot",
        function="compute_group_score",
    )
    one = manager(settings)
    found = await asyncio.gather(*(one.run_single(rollout(text)) for text in ("x", "xx")))
    assert [told["reward_score"] for told in found] == [0, 1]
    assert found[0]["reward_extra_info"] == {"score": 0, "judge_calls": 0.5, "judge_no_verdict": 0}
