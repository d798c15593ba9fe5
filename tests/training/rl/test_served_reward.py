"""A tiny policy trained by TRL's GRPOTrainer with a served judge as its only reward."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from tests.served_command import ServedCommand
from tests.tirjudge.endpoint_server import chat, failure, serving
from tests.training.rl.letters_policy import BATCH, STEPS, trainer
from tirjudge.generation.base import GeneratorFailed
from tirjudge.serve.trl import JudgeReward

PROMPTS = ("Write letters.",)
RESPONSE = re.compile(r"\nResponse:\n(.*)\n\nGuidelines:\n", re.DOTALL)

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing. is deprecated:FutureWarning")


@dataclass
class Judge:
    """A served judge, with the scores that its model gave."""

    url: str = ""
    scores: list[float] = field(default_factory=list)

    def marks(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a score from 1 to 10 by the share of letters in the response."""
        (response,) = RESPONSE.findall(body["messages"][-1]["content"])
        letters = sum(char.isascii() and char.isalpha() for char in response)
        self.scores.append(1 + 9 * letters // max(1, len(response)))
        return chat(f"<score>{self.scores[-1]}</score>")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Start `tirjudge serve` as a process that asks a model behind an endpoint."""
    served = Judge()
    with serving() as model:
        model.script = served.marks
        with ServedCommand("serve", "--no-tools", "--model", "m", "--base-url", model.url) as command:
            served.url = command.url
            yield served


@pytest.mark.slow
def test_a_policy_learns_what_the_served_judge_rewards(judge: Judge, tmp_path: Path) -> None:
    grpo = trainer(JudgeReward(judge.url), PROMPTS, tmp_path)
    before = [parameter.clone() for parameter in grpo.model.parameters()]
    grpo.train()

    logs = [log for log in grpo.state.log_history if "reward" in log]
    of_each_step = [judge.scores[first : first + BATCH] for first in range(0, STEPS * BATCH, BATCH)]
    assert [log["reward"] for log in logs] == pytest.approx([fmean(scores) for scores in of_each_step])
    assert {log["judge/no_verdict"] for log in logs} == {0.0}
    assert any(not torch.equal(*pair) for pair in zip(before, grpo.model.parameters(), strict=True))
    assert fmean(log["reward"] for log in logs[-3:]) > 1 + fmean(log["reward"] for log in logs[:3])


@pytest.mark.slow
def test_a_judge_that_stays_down_stops_the_training(tmp_path: Path) -> None:
    with serving() as down:
        down.answers(failure(503, "generator_down: off", {"retry-after": "0"}))
        grpo = trainer(JudgeReward(down.url), PROMPTS, tmp_path)
        with pytest.raises(GeneratorFailed, match="generator_down: off"):
            grpo.train()
    assert grpo.state.global_step == 0
