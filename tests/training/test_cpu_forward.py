"""Scoring on a CPU gives TRL's logprobs, entropies and gradients, from fewer tokens."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
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
PROJECTIONS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
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
    assert_equal(expected, found)


@pytest.fixture(scope="module")
def adapted() -> tuple[Any, Any]:
    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(**SIZE, tie_word_embeddings=True))
    model = inject_adapter_in_model(LoraConfig(r=4, lora_alpha=8, target_modules=PROJECTIONS), base)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    return trl_and_faster(model)


@pytest.mark.parametrize("name", BATCHES)
def test_values_and_gradients_of_an_adapter_are_trls(name: str, adapted: tuple[Any, Any]) -> None:
    rows, prompts = BATCHES[name]
    expected, found = (scored(model, rows, prompts) for model in adapted)
    assert len(expected[1]) == len(found[1]) == 3 * 7 * 2
    assert_equal(expected, found)


def test_passes_without_gradients_see_updates_and_the_model_under_the_adapter(
    adapted: tuple[Any, Any],
) -> None:
    rows, prompts = BATCHES["samples of prompts"]

    def logprobs(model: Any) -> Any:
        return unlearned(model, rows, prompts)

    before, below = logprobs(adapted[1]), {}
    for number, model in enumerate(adapted):
        switch_adapter(model, on=False)
        below[number] = logprobs(model)
        switch_adapter(model, on=True)
        # The optimizer of the trainers, which changes weights without a new version of their tensors.
        learned = [weight for weight in model.parameters() if weight.requires_grad]
        scored(model, rows, prompts)
        torch.optim.AdamW(learned, lr=0.02, fused=True).step()
    expected, found = map(logprobs, adapted)
    assert torch.allclose(below[0], below[1], rtol=0, atol=1e-5)
    assert torch.allclose(expected, found, rtol=0, atol=1e-5)
    assert not torch.allclose(before, found, rtol=0, atol=1e-2)


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
    model.zero_grad()
    output = model(**batch(rows, prompts))
    weights = torch.linspace(0.5, 2, output.log_probs.numel()).view_as(output.log_probs)
    (output.log_probs * weights).mean().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return output, gradients


def assert_equal(
    expected: tuple[Any, Sequence[torch.Tensor]], found: tuple[Any, Sequence[torch.Tensor]]
) -> None:
    """Compare what `scored` returned for two models: every value and every gradient."""
    for field in ("log_probs", "entropy", "is_top1", "label_mask"):
        assert torch.allclose(
            getattr(expected[0], field).float(), getattr(found[0], field).float(), rtol=0, atol=1e-5
        ), field
    for before, after in zip(expected[1], found[1], strict=True):
        assert torch.allclose(before, after, rtol=0, atol=1e-5)


def unlearned(model: Any, rows: Sequence[Sequence[int]], prompts: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(**batch(rows, prompts)).log_probs
    return found


def switch_adapter(model: Any, *, on: bool) -> None:
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            layer.enable_adapters(on)


def batch(rows: Sequence[Sequence[int]], prompts: Sequence[int]) -> dict[str, Any]:
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(attention == 0, IGNORED)
    for row, prompt in enumerate(prompts):
        labels[row, :prompt] = labels[row, prompt + 3 : prompt + 5] = IGNORED
    return {"input_ids": ids, "attention_mask": attention, "labels": labels, "fused_lm_head": True}
