"""The attention of a training pass: four layers of an 8 B model with its output layer of 152,000 words."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.gpu_check.findings import Findings, device, median_seconds, on_gpu, peak
from tirjudge_training.cpu_forward import IGNORED
from tirjudge_training.distributed.processes import ALONE
from tirjudge_training.rl.packed_attention import can_pack, pack_rows
from tirjudge_training.rl.packing import score_packed
from tirjudge_training.run.model_size import SHAPES

if TYPE_CHECKING:
    from torch import Tensor

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 2048,
}
"""Sizes that a CPU computes in a second."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `[rows, tokens]`: samples of the same prompt follow each other."""

    ids: Tensor
    attention: Tensor
    scored: Tensor

    @property
    def lengths(self) -> list[int]:
        return self.attention.sum(1).tolist()


def check(findings: Findings) -> None:
    for title, samples in (("prompts of one row", 1), ("8 samples a prompt", 8)):
        rows = drawn(samples)
        exact: Tensor | None = None
        for form, work in forms().items():
            try:
                model = network(packed_kernel=form == "packed, sections")
                if model is None:
                    continue
                kept: list[Tensor] = []
                peak(reset=True)
                seconds = median_seconds(lambda: kept.append(work(model, rows)))  # noqa: B023
                sums = kept[-1]
                exact = sums if exact is None else exact
                tokens = sum(rows.lengths)
                findings.note(
                    f"{title}, {form}",
                    tokens=tokens,
                    seconds=seconds,
                    per_second=tokens / seconds,
                    peak_gib=peak(reset=True),
                    most_from_padded=(sums - exact).abs().max().item(),
                )
            except RuntimeError as error:  # without memory, or a kernel that torch refuses
                findings.note(f"{title}, {form}", error=str(error)[:300])
            model = None
            gc.collect()
            if on_gpu():
                import torch

                torch.cuda.empty_cache()


def drawn(samples: int) -> Rows:
    """Return rows of up to 2,048 tokens whose first three quarters, at least, are the prompt."""
    import torch

    count, width = (8, 2048) if on_gpu() else (8, 64)
    draw = torch.Generator().manual_seed(0)
    prompt = width * 3 // 4
    ids = torch.randint(3, vocabulary(), (count, width), generator=draw)
    for row in range(count):
        ids[row, :prompt] = ids[row - row % samples, :prompt]
    lengths = torch.randint(prompt + 2, width + 1, (count,), generator=draw)
    places = torch.arange(width)[None]
    attention = (places < lengths[:, None]).long()
    return Rows(*(one.to(device()) for one in (ids, attention, attention * (places >= prompt))))


def shape() -> dict[str, Any]:
    known = json.loads(SHAPES.read_text(encoding="utf-8"))["Qwen/Qwen3-8B"]
    return {**known, "num_hidden_layers": 4} if on_gpu() else {**known, **TINY, "num_hidden_layers": 1}


def vocabulary() -> int:
    size: int = shape()["vocab_size"]
    return size


def network(*, packed_kernel: bool) -> Any | None:
    """Return the network with random weights; None if packed attention cannot be used here."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    config = AutoConfig.for_model(**shape(), max_position_embeddings=40960)
    with torch.device(device()):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if packed_kernel:
        if not can_pack(model):
            return None
        pack_rows(model)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    with warnings.catch_warnings():
        # transformers renames the method, and older versions have only this one.
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    return model


def forms() -> dict[str, Callable[[Any, Rows], Tensor]]:
    """Return passes forward and backward, by their names; each returns the rows' sums of logprobs."""
    return {
        "padded, 1 row": lambda model, rows: padded(model, rows, 1),
        "padded, 4 rows": lambda model, rows: padded(model, rows, 4),
        "packed, mask": packed,
        "packed, sections": packed,
    }


def padded(model: Any, rows: Rows, micro: int) -> Tensor:
    import torch

    model.zero_grad(set_to_none=True)
    sums = []
    with torch.autocast(device(), dtype=torch.bfloat16):
        for first in range(0, len(rows.ids), micro):
            end = max(rows.lengths[first : first + micro])
            ids, attention, scored = (
                one[first : first + micro, :end] for one in (rows.ids, rows.attention, rows.scored)
            )
            labels = ids.masked_fill(scored == 0, IGNORED)
            found = model(
                input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True
            ).log_probs
            found.sum().backward()
            sums.append((found.detach().float() * (labels[:, 1:] != IGNORED)).sum(1))
    return torch.cat(sums)


def packed(model: Any, rows: Rows) -> Tensor:
    import torch

    model.zero_grad(set_to_none=True)
    with torch.autocast(device(), dtype=torch.bfloat16):
        found, _ = score_packed(model, rows.ids, rows.attention, rows.scored, budget=None, processes=ALONE)
    found.sum().backward()
    return found.detach().float().sum(1)
