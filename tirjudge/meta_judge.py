"""The configuration of the MetaJudge: the model that a reward depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from tirjudge.generation.base import Sampling
from tirjudge.judge_config import Option
from tirjudge.model_config import AskedModel
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions


class MetaJudgeConfig(AskedModel):
    """The model that answers the questions of a reward.

    The rationale paper trains with Qwen3-30B-A3B-Instruct-2507 and evaluates with
    Qwen3-235B-A22B-Instruct-2507 and DeepSeek-R1 (sections 3.1, 4.2 and 4.5).
    """

    temperature: Annotated[float, Field(ge=0), Option("Model")] = 0.0
    """Temperature of the first attempt (our choice); an unreadable answer is retried at 0.7 or more."""

    def open(
        self, *, kept: AnswerStore | None = None, say: Callable[[str], None] = lambda line: None
    ) -> RewardQuestions:
        """Return the open MetaJudge; a local model is loaded at the first question.

        Raises ValueError for an invalid address.
        """
        return RewardQuestions(
            self.generator(),
            sampling=Sampling(temperature=self.temperature, max_tokens=self.max_tokens),
            kept=kept,
            patience=self.patience,
            say=say,
        )
