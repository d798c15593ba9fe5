"""The configuration of `tirjudge train --distill`: teacher, corrector, prompts, and selection."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator

from tirjudge.generation.base import SamplingOptions
from tirjudge.generation.endpoint.http import api_root
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.endpoint.options import EndpointOptions
from tirjudge.judging.options import KEY_VARIABLES
from tirjudge.storage.run_settings import MOVABLE
from tirjudge_environments.types import FrozenModel
from tirjudge_training.rl.dynamic_sampling import Keep

TEACHER_KEY, CORRECTOR_KEY = "TIRJUDGE_TEACHER_API_KEY", "TIRJUDGE_CORRECTOR_API_KEY"
"""Environment variables of the API keys, which are read from nowhere else. The teacher's key may also be in
one of `KEY_VARIABLES`."""

Tier = Literal["tools", "turns"]


class TeacherModel(FrozenModel):
    """A model behind an OpenAI-compatible endpoint."""

    model: str = ""
    """The model's name at the endpoint."""
    base_url: Annotated[str, MOVABLE] = ""
    """Address of the endpoint, such as Azure's with `?api-version=...`. It must contain no secret, since the
    run folder stores it."""
    tier: Tier = "tools"
    """Native tool calls, or fenced programs through plain chat (see `OpenAIGenerator`)."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value:
            api_root(value, query=True)
        return value


class CorrectorConfig(TeacherModel):
    """A second teacher that rewrites wrong judgments, given the right answer (RM-R1, App. B).

    Without a base URL, the corrector uses the first teacher's endpoint and key. At another address the
    corrector uses its own key or none; the first teacher's key is never sent there.
    """

    model: str = Field(min_length=1)


class TeacherConfig(TeacherModel, EndpointOptions, SamplingOptions):
    """The teacher of a distillation; TIR-Judge's is Gemini-2.5-Flash (TIR §4.3).

    `ours` marks what the paper does not print.
    """

    family: str = "tir"
    """The family of the teacher's prompts; the student keeps its own (ours)."""
    prompts: int | None = Field(default=None, gt=0)
    """Training tasks that the teacher judges; None means all."""
    kept: int | None = Field(default=None, gt=0)
    """Dialogues with the full reward after which no further one is started; None: no limit. The paper kept
    about 10,000. Running dialogues are finished."""
    samples: int = Field(default=1, gt=0)
    """Dialogues per prompt (ours)."""
    keep: Keep = "shortest"
    """Which dialogues with the full reward to prefer: by length, or by tool calls and then length (ours)."""
    reward: float = 1.0
    """The full reward, without the terms of `reward_terms`: R = 1, for a dialogue that is right, well formed
    and without an error."""
    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy decoding (ours)."""
    max_tokens: int = Field(default=8192, gt=0)
    """New tokens of one dialogue, program outputs included."""
    tool_calls: int = Field(default=3, ge=0)
    sandbox: Annotated[str, MOVABLE] = "local"
    """The sandbox backend, by name (ours)."""
    give_up_after: Annotated[int, MOVABLE] = Field(default=16, gt=0)
    """Abort after so many consecutive dialogues failed because teacher or sandbox was down (ours)."""
    token_cap: Annotated[int | None, MOVABLE] = Field(default=None, gt=0)
    """Prompt and completion tokens of both teachers after which no dialogue is started; None: no cap (ours).

    Running dialogues are finished. Counted as the endpoint reports; retries, and dialogues that
    failed in an earlier start or were cut short by a kill, are not counted.
    """
    corrector: CorrectorConfig | None = None

    def open_teacher(self) -> OpenAIGenerator:
        return self._open(self.model, self.base_url, self.tier, (TEACHER_KEY, *KEY_VARIABLES))

    def open_corrector(self) -> OpenAIGenerator | None:
        second = self.corrector
        if second is None:
            return None
        # At another address only its own key: the teacher's key must not reach a third party.
        own = (CORRECTOR_KEY,)
        keys = own if second.base_url else (*own, TEACHER_KEY, *KEY_VARIABLES)
        return self._open(second.model, second.base_url or self.base_url, second.tier, keys)

    def _open(self, model: str, base_url: str, tier: Tier, keys: Sequence[str]) -> OpenAIGenerator:
        key = next((os.environ[name] for name in keys if os.environ.get(name)), None)
        teacher = self.model_copy(update={"model": model, "base_url": base_url})
        return teacher.open_endpoint(key, tier=tier)
