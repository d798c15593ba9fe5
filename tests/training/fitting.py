"""A tiny model fitted to a few dialogues."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Qwen3ForCausalLM


def fit(model: Qwen3ForCausalLM, dialogues: Sequence[tuple[Sequence[int], Sequence[int]]], pad: int) -> None:
    """Train sixty steps on every second element, given the first, both as token ids."""
    longest = max(len(start) + len(rest) for start, rest in dialogues)
    ids = torch.full((len(dialogues), longest), pad)
    labels = torch.full((len(dialogues), longest), -100)
    for row, (start, rest) in enumerate(dialogues):
        ids[row, : len(start) + len(rest)] = torch.tensor([*start, *rest])
        labels[row, len(start) : len(start) + len(rest)] = torch.tensor(rest)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        model(input_ids=ids, attention_mask=(ids != pad).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
