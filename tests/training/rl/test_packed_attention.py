"""Packed rows in one pass that computes each prompt once, against plain passes of whole rows.

The kernel runs on GPUs alone; its definition in plain torch takes its place here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.attention import varlen
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import add_fused_lm_head

from tests.tirjudge.tiny_models import tiny_llama, tiny_qwen3
from tirjudge_training.distributed.processes import ALONE
from tirjudge_training.rl import packed_attention
from tirjudge_training.rl.packed_attention import can_pack, pack, pack_rows, packs_rows
from tirjudge_training.rl.packing import packed_parts, packs, score_packed

LOGPROB, GRADIENT = 1e-5, 1e-4
"""The largest difference of a logprob, in nats, and of a gradient, relative to its norm, in float32."""


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute causal attention of each section alone, with the last query at the last key."""
    assert window_size == (-1, 0)
    assert (cu_seq_q.dtype, cu_seq_k.dtype) == (torch.int32, torch.int32)
    assert str(query.dtype) in packed_attention.TYPES, "FlashAttention only support fp16 and bf16 data type"
    sections = list(zip(cu_seq_q.tolist(), cu_seq_k.tolist(), strict=True))  # with the start of the first
    assert sections[-1] == (len(query), len(key))
    seen = []
    for (start, first), (end, last) in pairwise(sections):
        assert end - start <= max_q
        assert last - first <= max_k
        q, k, v = (one.transpose(0, 1) for one in (query[start:end], key[first:last], value[first:last]))
        k, v = (one.repeat_interleave(len(q) // len(k), 0) for one in (k, v))
        scores = q @ k.transpose(1, 2) * (scale or q.shape[-1] ** -0.5)
        hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(last - first - (end - start) + 1)
        seen.append((scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(seen)


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", reference)
    # Unlike the kernel, its definition also computes in float32, in which differences are small.
    monkeypatch.setattr(packed_attention, "TYPES", packed_attention.TYPES | {"torch.float32"})


@pytest.fixture(params=[tiny_qwen3, tiny_llama])
def model(request: pytest.FixtureRequest) -> Any:
    build: Callable[..., Any] = request.param
    model = build(attn_implementation="sdpa")
    config = model.config
    assert config.num_attention_heads > config.num_key_value_heads, "heads that share keys"
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def rows(*samples: int, prompt: int = 20, answer: int = 12, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Return ids, attention and scored tokens of so many samples of each prompt, with outputs in between."""
    draw = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 200, (count,), generator=draw).tolist()

    found = []
    for number, count in enumerate(samples):
        asked = ids(prompt + number)
        for sample in range(count):
            written = answer - sample
            scored = [0] * len(asked) + [1] * 3 + [0] * 2 + [1] * (written - 5)
            found.append((asked + ids(written), scored))
    width = max(len(row) for row, _ in found)
    padded = torch.tensor([row + [0] * (width - len(row)) for row, _ in found])
    attention = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row, _ in found])
    return padded, attention, torch.tensor([one + [0] * (width - len(one)) for _, one in found])


def gradient(model: Any, logprobs: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    weights = torch.linspace(-1, 1, int(scored.sum()))
    (logprobs[scored.bool()] * weights).sum().backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@pytest.mark.parametrize("samples", [(1, 1, 1), (3, 1, 4), (5,)])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("budget", [None, 60])
def test_logprobs_and_gradients_are_those_of_whole_rows(
    samples: tuple[int, ...], checkpointing: bool, budget: int | None, model: Any
) -> None:
    ids, attention, scored = rows(*samples)
    labels = ids.masked_fill(scored == 0, -100)
    plain = model(input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True)
    expected = torch.cat([torch.zeros(len(ids), 1), plain.log_probs], 1)
    slope = gradient(model, expected, scored)
    entropy = torch.cat([torch.zeros(len(ids), 1), plain.entropy], 1).detach()

    pack_rows(model)
    model.train()
    if checkpointing:
        model._set_gradient_checkpointing(True, partial(checkpoint, use_reentrant=False))
    logprobs, entropies = score_packed(
        model, ids, attention, scored, budget=budget, processes=ALONE, entropies=True
    )
    assert (logprobs - expected)[scored.bool()].abs().max() < LOGPROB
    assert (entropies - entropy)[scored.bool()].abs().max() < LOGPROB
    assert not logprobs[scored == 0].any()
    found = gradient(model, logprobs, scored)
    assert (found - slope).norm() < GRADIENT * slope.norm()


def test_the_kernel_gets_no_float32(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "TYPES", packed_attention.TYPES - {"torch.float32"})
    batch = rows(3, 2)
    exact, _ = score_packed(model, *batch, budget=None, processes=ALONE)
    pack_rows(model)
    assert not packs_rows(model)
    found, _ = score_packed(model, *batch, budget=None, processes=ALONE)
    assert (found - exact).abs().max() < LOGPROB
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packs_rows(model)
        rounded, _ = score_packed(model, *batch, budget=None, processes=ALONE)
    assert 1e-4 < (rounded - exact).abs().max() < 0.2


def test_a_prompt_passes_once_for_all_of_its_rows(model: Any) -> None:
    """8 samples of 600 tokens after 1,500 are 16,800 tokens in whole rows, and 6,307 here."""
    ids, attention, scored = rows(8, prompt=150, answer=60)
    whole = int(attention.sum())
    sections = pack(ids, attention, scored)
    assert len(sections.places) == whole - 7 * 149, "the last token of the prompt predicts each first one"
    prompts = [("a",) * 1499, ("b",) * 1499] * 8
    for budget, sizes in ((6307, [8, 8]), (6306, [2, 7, 7])):
        assert sorted(map(len, packs([1500 + 600] * 16, budget, prompts))) == sizes


def test_passes_without_packs_are_those_of_sdpa(model: Any) -> None:
    """The sampler and padded passes use the same model."""
    ids, attention, _ = rows(2, 1)
    exact = model(input_ids=ids, attention_mask=attention).logits
    pack_rows(model)
    assert packs_rows(model)
    assert torch.equal(model(input_ids=ids, attention_mask=attention).logits, exact)


def test_a_model_that_drops_the_sections_is_refused(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sections, rows would see each other."""
    pack_rows(model)
    forward = model.base_model.forward
    monkeypatch.setattr(model.base_model, "forward", lambda *ids, pack, **kw: forward(*ids, **kw))
    with pytest.raises(RuntimeError, match=r"leave out rl\.token_budget"):
        score_packed(model, *rows(2), budget=None, processes=ALONE)


def test_parts_of_a_batch_keep_rows_of_one_prompt_together() -> None:
    ids, attention, scored = rows(4, 4, 4)
    batch = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": torch.ones(len(ids), 1).long(),
        "completion_ids": ids[:, 1:],
        "completion_mask": attention[:, 1:],
        "tool_mask": scored[:, 1:],
    }
    parts = list(packed_parts(batch, 70, ALONE, shared=True))
    assert [len(part["completion_ids"]) for part in parts] == [4, 4, 4]
    for part in parts:
        assert len({tuple(row[:10]) for row in part["completion_ids"].tolist()}) == 1
    assert len(list(packed_parts(batch, 70, ALONE))) > 3


def test_only_models_whose_tokens_see_all_before_them_are_packed_so(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not can_pack(model), "the kernel needs a GPU"
    monkeypatch.setattr(packed_attention, "current_device", lambda: type("Gpu", (), {"device": "cuda"}))
    assert can_pack(model)
    model.config.layer_types = ["sliding_attention"] * model.config.num_hidden_layers
    assert not can_pack(model)
