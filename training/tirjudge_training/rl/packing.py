"""Packing: the rows of a forward pass in one sequence without padding, under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from tirjudge_training.cpu_forward import IGNORED
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.batching import cut


def packs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Return the numbers of the rows of each pass: first fit, longest rows first.

    A row that is longer than `budget` gets a pass of its own.
    """
    found: list[list[int]] = []
    room: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        place = next((n for n, left in enumerate(room) if left >= lengths[row]), None)
        if place is None:
            place = len(found)
            found.append([])
            room.append(budget)
        found[place].append(row)
        room[place] -= lengths[row]
    return found


def packed_parts(inputs: dict[str, Any], budget: int, processes: Processes) -> Iterator[dict[str, Any]]:
    """Split a TRL batch into parts of at most `budget` tokens, each with its tensors cut to its longest row.

    Rows that do not count are dropped. All processes get the same number of parts, and each part has the same
    number of rows in all of them, since TRL gathers one number per row; masked rows of one token fill them
    up.
    """
    import torch

    # A filler has no token that counts, and neither has a rollout of program output alone.
    counting = (inputs["completion_mask"] * inputs["tool_mask"]).any(1).nonzero()[:, 0].tolist()
    completions = inputs["completion_mask"].sum(1)
    lengths = (inputs["prompt_mask"].sum(1) + completions).tolist()
    parts = [[counting[n] for n in pack] for pack in packs([lengths[row] for row in counting], budget)]
    every = processes.every([len(part) for part in parts])
    sizes = [max(1, *each) for each in zip_longest(*every, fillvalue=0)] or [1]
    for number, size in enumerate(sizes):
        rows = parts[number] if number < len(parts) else []
        chosen = torch.tensor(rows + [0] * (size - len(rows)), device=completions.device)
        longest = int(completions[rows].max()) if rows else 1
        part = cut(inputs, chosen, inputs["completion_mask"].shape[1], longest)
        part["tool_mask"][len(rows) :] = 0
        part["completion_mask"][len(rows) :, 1:] = 0
        yield part


def score_packed(
    model: Any,
    ids: Any,
    attention: Any,
    scored: Any,
    *,
    budget: int | None,
    processes: Processes,
    entropies: bool = False,
) -> tuple[Any, Any]:
    """Return logprobs and, if wanted, entropies `[rows, tokens]` of the tokens in `scored`, 0 for the others.

    `ids`, `attention` and `scored` are `[rows, tokens]`, and `model` has TRL's fused head. Rows are told
    apart by their positions, which begin at 0: transformers gives each an attention of its own. `budget` None
    makes one pass; otherwise every process makes as many as the others, which sharded weights require.
    """
    import torch

    attended = attention.bool()
    chosen = [list(range(len(ids)))]
    if budget is not None:
        chosen = packs(attended.sum(1).tolist(), budget)
        chosen += [[]] * (max(processes.every(len(chosen))) - len(chosen))
    labels = ids.masked_fill(~scored.bool(), IGNORED)
    found = []
    for rows in chosen:
        # A pass that only keeps up with the other processes has one token.
        kept = attended[rows] if rows else attended[:1].cumsum(1) * attended[:1] == 1
        own = rows or [0]
        passed = model(
            input_ids=ids[own][kept][None],
            position_ids=(kept.cumsum(1) - 1)[kept][None],
            labels=labels[own][kept][None],
            fused_lm_head=True,
        )
        if rows:
            values = (passed.log_probs, passed.entropy) if entropies else (passed.log_probs,)
            found.append([_placed(value[0], kept) for value in values])
    back = torch.tensor([row for rows in chosen for row in rows], device=ids.device).argsort()
    logprobs, *more = (torch.cat(parts)[back] for parts in zip(*found, strict=True))
    return logprobs, (more[0] if more else None)


def _placed(values: Any, kept: Any) -> Any:
    """Return the values of a packed sequence at the places of its tokens; nothing predicts the first one."""
    import torch

    return values.new_zeros(kept.shape).masked_scatter(kept, torch.cat([values.new_zeros(1), values]))
