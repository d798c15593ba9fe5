"""A tool besides Python in training: what it answers is masked, and its calls count in budget and reward."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from examples.miniature.model import build_model
from tests.environments.tools.mcp_server import CORPUS, FORGED
from tests.environments.tools.test_mcp import COMMAND, servers
from tirjudge.generation.base import Sampling
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge_environments import ChatEncoder, Episode, JudgeTask, Message, Reward, StopReason
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_environments.types import Budget
from tirjudge_training.rl.packing import without_left_padding, written_tokens
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig
from tirjudge_training.rl.trl_rollout import rollout_tokens

TASK = JudgeTask(
    id="c", prompt=(Message("user", "The capital?"),), candidates=("Canberra", "Sydney"), label=0
)
ASK = 'I look it up.\n```search\n{"query": "capital"}\n```\n'
FORGE = "```forge\n{}\n```\n"
HANG = "```hang\n{}\n```\n"
VERDICT = "It is Canberra.\n<preference>A</preference>"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    judges = {"pairs": open_environment("tir-pairwise", order="given")}
    tools = ToolSettings(servers=(COMMAND,), allowed=("search", "forge", "hang"), wall_seconds=1.0)
    sampling, budget = Sampling(), Budget(tool_calls=2, tokens=4000)
    model, tokenizer = build_model(0)
    with Engine(
        model, tokenizer, judges, RolloutConfig(tools=tools), budget=budget, sampling=sampling
    ) as opened:
        yield opened
    assert not servers()


def played(engine: Engine, *turns: str) -> tuple[Episode, Reward]:
    rollout = engine.rollouts(0)["pairs"]
    # Only the model is scripted: the rollout, its tools and their servers are those of training.
    rollout._generator = ScriptedGenerator(turns, encoder=rollout._generator.encoder)
    episode = engine.run(rollout.episode(TASK))
    ((score,),) = engine.run(rollout.score([episode]))
    assert isinstance(score, Reward)
    return episode, score


def test_the_mask_is_one_for_the_judges_own_tokens_alone(engine: Engine) -> None:
    encoder: ChatEncoder = engine.rollouts(0)["pairs"]._generator.encoder  # type: ignore[assignment]
    (trajectory,), score = (one := played(engine, ASK, FORGE, VERDICT))[0].trajectories, one[1]
    prompt = list(encoder.prompt(trajectory.prompt))
    assert "search: Search a corpus of facts." in encoder.decode(prompt)
    quoted = "\n".join(f"> {line}" if line.startswith("```") else line for line in FORGED.split("\n"))
    # Tags from which the judge's format reads have look-alikes in the answers of tools.
    quoted = re.sub(r"<(/?preference)>", r"‹\1›", quoted)
    parts = [
        (1, ASK),
        (0, f"```output\n{CORPUS['capital']}\n```\n"),
        (1, FORGE),
        (0, f"```output\n{quoted}\n```\n"),
        (1, VERDICT),
    ]
    ids = [(mask, list(encoder.text(text))) for mask, text in parts]
    expected = [0] * (len(prompt) - 1) + [mask for mask, part in ids for _ in part]
    made = rollout_tokens(trajectory, score.total)
    end = len(made.completion_ids) - sum(len(part) for _, part in ids)
    assert end in (0, 1), "the last turn may have an end-of-sequence token"
    mask = written_tokens([made], len(expected) + end + 2, "cpu").tolist()
    assert mask == [[*expected, *([1] * end), 0, 0]]
    whole = [token for _, part in ids for token in part]
    assert list(without_left_padding(made).completion_ids[: len(expected)]) == prompt[1:] + whole
    assert (score.total, trajectory.stop) == (1.0, StopReason.VERDICT)


@pytest.mark.parametrize(
    ("turns", "tool"),
    [
        ((ASK, VERDICT), 1.0),
        ((ASK, ASK, ASK, VERDICT), 0.0),
        ((ASK, "```python\nprint(1)\n```\n", ASK, VERDICT), 0.0),
        ((HANG, VERDICT), 0.0),
        (('```search\n{"query": "Mars"}\n```\n', VERDICT), 0.0),
    ],
    ids=["in budget", "beyond the budget", "beyond it with a program", "hangs", "reports an error"],
)
def test_every_call_counts_in_the_budget_and_the_reward(
    engine: Engine, turns: tuple[str, ...], tool: float
) -> None:
    _, score = played(engine, *turns)
    assert (score.parts["correct"], score.parts["tool"]) == (1.0, tool)
    assert score.total == (1.0 if tool else 0.1)
