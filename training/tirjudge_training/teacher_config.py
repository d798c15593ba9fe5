"""Who teaches in `tirjudge train --distill`, what is asked, and what is kept of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tirjudge.generation.endpoint import api_root
from tirjudge.generation.openai import OpenAIGenerator
from tirjudge.judge_config import KEY_VARIABLES
from tirjudge_training.replay import Reasoning

TEACHER_KEY, CORRECTOR_KEY = "TIRJUDGE_TEACHER_API_KEY", "TIRJUDGE_CORRECTOR_API_KEY"
"""Environment variables. The teacher's may also be one of `KEY_VARIABLES`; keys are nowhere else."""

Tier = Literal["tools", "turns", "continue"]


class EndpointConfig(BaseModel):
    """A model behind an OpenAI-compatible endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    """The name that the endpoint knows it by."""
    base_url: str = ""
    tier: Tier = "tools"
    """Native calls, or programs in fences through plain or continued chat (see `OpenAIGenerator`)."""

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, value: str) -> str:
        if value:
            api_root(value)
        return value


class CorrectorConfig(EndpointConfig):
    """A second teacher, who writes anew what the first got wrong, the answer told (RM-R1, App. B).

    Without a base URL of its own it is asked at the first one's, with the first one's key; at another address
    it gets its own key or none.
    """

    model: str = Field(min_length=1)


class TeacherConfig(EndpointConfig):
    """Whom a student learns from; TIR-Judge's teacher is Gemini-2.5-Flash (TIR §4.3).

    `ours` marks what the paper does not print.
    """

    family: str = "tir"
    """Of the prompts that it gets; the student keeps its own (ours)."""
    prompts: int | None = Field(default=None, gt=0)
    """Training tasks that are put to it; None is all of them. The paper kept about 10,000 trajectories."""
    samples: int = Field(default=1, gt=0)
    """Dialogues about each prompt (ours)."""
    keep: Literal["shortest", "fewest_calls"] = "shortest"
    """Which of those with the full reward: by their length, or by calls and then length (ours)."""
    per_prompt: int = Field(default=1, gt=0)
    """How many of them at most (ours)."""
    reward: float = 1.0
    """The full reward: R = 1, right, well formed and without an error."""
    reasoning: Reasoning = "drop"
    """Hidden thinking, which some endpoints return apart from the text: left out, or written before it.

    The paper learns from "reasoning and code steps" with thinking off, and does not say of hidden thoughts.
    """
    temperature: float = Field(default=1.0, ge=0)
    """Ours."""
    max_tokens: int = Field(default=8192, gt=0)
    """Written in one dialogue, outputs included."""
    tool_calls: int = Field(default=3, ge=0)
    sandbox: str = "local"
    """What runs its programs, by name (ours)."""
    concurrency: int = Field(default=32, gt=0)
    """Dialogues, and requests, at once (ours)."""
    give_up_after: int = Field(default=16, gt=0)
    """Stop once so many dialogues in a row failed because teacher or sandbox was down (ours)."""
    token_cap: int | None = Field(default=None, gt=0)
    """Tokens read and written, of both teachers, after which no dialogue is begun; None: no cap (ours).

    Those that are under way are finished. As the endpoint counts; its retries, and dialogues that a kill
    cut short, are not seen.
    """
    corrector: CorrectorConfig | None = None

    def open_teacher(self) -> OpenAIGenerator:
        return self._open(self.model, self.base_url, self.tier, (TEACHER_KEY, *KEY_VARIABLES))

    def open_corrector(self) -> OpenAIGenerator | None:
        second = self.corrector
        if second is None:
            return None
        own = (CORRECTOR_KEY,)
        keys = own if second.base_url else (*own, TEACHER_KEY, *KEY_VARIABLES)
        return self._open(second.model, second.base_url or self.base_url, second.tier, keys)

    def _open(self, model: str, base_url: str, tier: Tier, keys: Sequence[str]) -> OpenAIGenerator:
        key = next((os.environ[name] for name in keys if os.environ.get(name)), None)
        return OpenAIGenerator(model, base_url, api_key=key, tier=tier, concurrency=self.concurrency)
