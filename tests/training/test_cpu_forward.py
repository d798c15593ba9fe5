"""Scoring on a CPU gives TRL's logprobs, entropies and gradients, from fewer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pytest
import torch
from transformers import (
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)
from trl.trainer.utils import add_fused_lm_head

from tirjudge_training.cpu_forward import IGNORED, score_learned_tokens, shares_prompts

TEMPERATURE = 1.2
SIZE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.1,
}
RNG = Random(0)


def tokens(count: int) -> list[int]:
    return [RNG.randrange(1, 300) for _ in range(count)]


BEGINNING = tokens(20)
PROMPTS = [tokens(30), tokens(25), tokens(12)]
BATCHES: dict[str, tuple[list[list[int]], list[int]]] = {
    "a common beginning": ([BEGINNING + tokens(10 + i) for i in range(6)], [25] * 6),
    "samples of prompts": (
        [prompt + tokens(6 + 2 * i) for prompt in PROMPTS for i in range(4)],
        [len(prompt) for prompt in PROMPTS for _ in range(4)],
    ),
    "nothing in common": ([tokens(20 + i) for i in range(4)], [9] * 4),
    "a row without a learned token": (
        [*[PROMPTS[0] + tokens(9) for _ in range(3)], tokens(2)],
        [30, 30, 30, 2],
    ),
    "no learned token at all": ([PROMPTS[0] + tokens(4) for _ in range(3)], [34] * 3),
}


def trl_and_faster(plain: Any) -> tuple[Any, Any]:
    """Return the same model with TRL's forward pass and with the faster one."""
    faster = deepcopy(plain)
    for model in (plain, faster):
        add_fused_lm_head(model, TEMPERATURE, outputs=("log_probs", "entropy", "is_top1"))
    score_learned_tokens(faster, temperature=TEMPERATURE)
    return plain, faster


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return trl_and_faster(LlamaForCausalLM(LlamaConfig(**SIZE, tie_word_embeddings=True)))


@pytest.mark.parametrize("name", ["mistral", "lfm2"])
def test_values_of_models_without_full_attention_are_trls(name: str) -> None:
    """All rows fit the window of 40, but a prompt and the padding behind it would not."""
    torch.manual_seed(0)
    models = trl_and_faster(
        MistralForCausalLM(MistralConfig(**SIZE, sliding_window=40))
        if name == "mistral"
        else Lfm2ForCausalLM(Lfm2Config(**SIZE, full_attn_idxs=[1]))
    )
    rests = zip(PROMPTS, (6, 10, 22), strict=True)
    rows = [prompt + tokens(rest + i) for prompt, rest in rests for i in range(4)]
    expected, found = (scored(model, rows, [len(p) for p in PROMPTS for _ in range(4)]) for model in models)
    assert torch.allclose(expected[0].log_probs, found[0].log_probs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", BATCHES)
def test_values_and_gradients_are_trls(name: str, models: tuple[Any, Any]) -> None:
    rows, prompts = BATCHES[name]
    expected, found = (scored(model, rows, prompts) for model in models)
    for field in ("log_probs", "entropy", "is_top1", "label_mask"):
        assert torch.allclose(
            getattr(expected[0], field).float(), getattr(found[0], field).float(), rtol=0, atol=1e-5
        ), field
    for before, after in zip(expected[1], found[1], strict=True):
        assert torch.allclose(before, after, rtol=0, atol=1e-5)


def test_a_shared_prompt_is_computed_once(models: tuple[Any, Any]) -> None:
    fed: list[int] = []
    hook = models[1].model.register_forward_pre_hook(
        lambda module, args, kwargs: fed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    rows, prompts = BATCHES["samples of prompts"]
    scored(models[1], rows, prompts)
    hook.remove()
    assert sum(fed) < 0.7 * len(rows) * max(map(len, rows))
    assert shares_prompts(models[1])
    assert not shares_prompts(models[0])


def test_only_learned_positions_get_logits(models: tuple[Any, Any]) -> None:
    projected: list[int] = []
    hook = models[1].lm_head.register_forward_hook(lambda module, args, out: projected.append(len(out)))
    rows, prompts = BATCHES["a common beginning"]
    output, _ = scored(models[1], rows, prompts)
    hook.remove()
    assert projected == [int(output.label_mask.sum())]


def scored(
    model: Any, rows: Sequence[Sequence[int]], prompts: Sequence[int]
) -> tuple[Any, list[torch.Tensor]]:
    """Return the output and the gradients; what follows each prompt is learned, but for two tokens."""
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(attention == 0, IGNORED)
    for row, prompt in enumerate(prompts):
        labels[row, :prompt] = labels[row, prompt + 3 : prompt + 5] = IGNORED
    model.zero_grad()
    output = model(input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True)
    weights = torch.linspace(0.5, 2, output.log_probs.numel()).view_as(output.log_probs)
    (output.log_probs * weights).mean().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return output, gradients
