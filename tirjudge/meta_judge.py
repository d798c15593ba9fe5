"""The model that a reward asks, as a configuration: behind an endpoint or in this process."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from tirjudge.generation.base import Sampling
from tirjudge.model_config import AskedModel
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions


class MetaJudgeConfig(AskedModel):
    """Who answers the questions of a reward.

    The rationale paper trains with Qwen3-30B-A3B-Instruct-2507 and evaluates with
    Qwen3-235B-A22B-Instruct-2507 and DeepSeek-R1 (sections 3.1, 4.2 and 4.5).
    """

    temperature: float = Field(default=0.0, ge=0)
    """Of the first asking (ours); an answer that cannot be read is asked for again at 0.7 or more."""

    def open(
        self, *, kept: AnswerStore | None = None, say: Callable[[str], None] = lambda line: None
    ) -> RewardQuestions:
        """A local model is loaded at the first question. Raises ValueError for what is no address."""
        return RewardQuestions(
            self.generator(),
            sampling=Sampling(temperature=self.temperature, max_tokens=self.max_tokens),
            kept=kept,
            patience=self.patience,
            say=say,
        )
