"""A tiny policy trained by TRL's GRPOTrainer on comparisons within its groups, verified without the judge."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.training.rl.letters_policy import BATCH, STEPS, trainer
from tirjudge import Judge
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.serve.trl import JudgeGroupReward
from tirjudge_environments import Context

PROMPTS = ("Write letters.", "Write words.")
PAIR = re.compile(r"\nResponse A:\n(.*)\n\nResponse B:\n(.*)\n\nGuidelines:\n", re.DOTALL)

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")


def letters(text: str) -> float:
    return sum(char.isascii() and char.isalpha() for char in text) / max(1, len(text))


def prefer_letters(context: Context) -> str:
    (pair,) = PAIR.findall(context.prompt.messages[-1].content)
    first, second = map(letters, pair)
    return "No idea." if first == second else f"<preference>{'A' if first > second else 'B'}</preference>"


@pytest.mark.slow
def test_a_policy_learns_what_a_judge_of_pairs_prefers(tmp_path: Path) -> None:
    written: list[str] = []
    with Judge(generator=ScriptedGenerator(prefer_letters), tools=False) as judge:
        asking = JudgeGroupReward(judge, "swiss", group_size=BATCH // 2)

        async def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
            written.extend(completions)
            return await asking(prompts, completions, **columns)

        grpo = trainer(reward, PROMPTS, tmp_path)
        grpo.train()
    shares = [fmean(map(letters, written[start : start + BATCH])) for start in range(0, len(written), BATCH)]
    assert len(shares) == STEPS
    assert fmean(shares[-3:]) > 0.15 + fmean(shares[:3])
    logs = [log for log in grpo.state.log_history if "reward" in log]
    # Two groups of 8 in a step, each with three rounds of four pairs, unless completions are equal.
    assert logs[0]["judge/calls"] == 12
    assert all(log["judge/calls"] <= 12 for log in logs)


def test_a_judge_that_is_down_stops_the_training(tmp_path: Path) -> None:
    def down(context: Context) -> str:
        raise GeneratorFailed("the machine is off")

    with Judge(generator=ScriptedGenerator(down), tools=False) as judge:
        grpo = trainer(JudgeGroupReward(judge), PROMPTS, tmp_path)
        with pytest.raises(GeneratorFailed, match="the machine is off"):
            grpo.train()
    assert grpo.state.global_step == 0
