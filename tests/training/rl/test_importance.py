"""Truncated importance sampling: tokens are weighted by trainer over sampler probability."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.rows import every
from tests.training.conftest import ENVIRONMENTS, source
from tirjudge.generation import Sampling
from tirjudge_environments import Completion, Context
from tirjudge_training.cpu_forward import score_learned_tokens
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.losses import truncated_weights
from tirjudge_training.rl.rollout_engine import Engine
from tirjudge_training.rl.stage_trainer import build_trainer

CONFIG = RlConfig(steps=1, groups=2, samples=4, max_tokens=60, learning_rate=1e-3, filter="none")
SHIFT = 0.5


class Underrating:
    """The policy's generator, reporting logprobs that are all too low."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        completion = await self._inner.generate(context, sampling)
        return replace(completion, logprobs=tuple(logprob - SHIFT for logprob in completion.logprobs))


PASSES: dict[str, dict[str, Any]] = {
    "padded": {"length_buckets": 1},
    "packed": {"token_budget": 400},
    "shared prompts": {},  # on a CPU
    "several optimizer steps": {"optimizer_steps": 2, "micro_batch": 4},
}
"""Forward passes of training, by the settings that choose them."""


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[Engine]:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32", attn_implementation="sdpa")
    with Engine(model, AutoTokenizer.from_pretrained(tiny_model), ENVIRONMENTS, CONFIG) as opened:
        opened.generator = Underrating(opened.generator)
        opened.model = model  # type: ignore[attr-defined]
        yield opened


@pytest.mark.parametrize("name", every(4, PASSES))
@pytest.mark.parametrize(("cap", "weight"), [(1.2, 1.2), (5.0, math.exp(SHIFT))])
def test_a_batch_of_another_engine_is_weighted(
    cap: float, weight: float, name: str, engine: Any, tiny_model: Path, tmp_path: Path
) -> None:
    """All logprobs are too low by the same number, so that the gradient is that many times the plain one."""
    passes, settings = [], PASSES[name]

    def gradient(importance_cap: float | None) -> torch.Tensor:
        trainer = build_trainer(
            engine.model,
            AutoTokenizer.from_pretrained(tiny_model),
            CONFIG.model_copy(update={"beta": 0.0, **settings, "importance_cap": importance_cap}),
            engine=engine,
            source=source,
            seed=0,
            output=str(tmp_path),
        )
        if not settings:
            score_learned_tokens(engine.model)
        score = trainer._get_per_token_logps_and_entropies
        trainer._get_per_token_logps_and_entropies = lambda *rows, **kw: (
            passes.append(cap),
            score(*rows, **kw),
        )[1]
        batch = trainer._generate_and_score_completions([])
        passes.append("sampled")
        engine.model.zero_grad()
        trainer._compute_loss(engine.model, batch).backward()
        return torch.cat([p.grad.flatten() for p in engine.model.parameters()])

    plain = gradient(None)
    scored, passes = passes, []
    weighted = gradient(cap)
    assert plain.norm() > 1e-4
    assert torch.allclose(weighted, plain * weight, atol=1e-5 * plain.norm())
    assert len(passes) == len(scored), "the batch is not scored once more for its weights"


def test_the_weight_carries_no_gradient() -> None:
    trained = torch.tensor([[-1.0, -2.0, -3.0]], requires_grad=True)
    weights = truncated_weights(trained, torch.tensor([[-1.0, -1.0, -5.0]]), cap=2.0)
    assert weights.tolist() == [pytest.approx([1.0, math.exp(-1), 2.0])]
    assert not weights.requires_grad
