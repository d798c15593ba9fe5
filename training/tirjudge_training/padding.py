"""Less padding: rows begin where their text does, and parts of a batch are as long as they need to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tirjudge_training.trl_rollout import Row


def from_the_left(row: Row) -> Row:
    """The same row with all of the prompt but its first token moved into the completion, masked.

    TRL pads prompts on the left without telling the model the positions, and rotary embeddings at shifted
    positions are another rounding: logprobs then differ from those sampled with by some 1e-5 in float32.
    With prompts of one length nothing is padded there.
    """
    moved = row.prompt_ids[1:]
    return replace(
        row,
        prompt_ids=row.prompt_ids[:1],
        completion_ids=moved + row.completion_ids,
        mask=(0,) * len(moved) + row.mask,
        logprobs=(0.0,) * len(moved) + row.logprobs,
    )


def buckets(inputs: dict[str, Any], parts: int, *, every: bool = False) -> Iterator[dict[str, Any]]:
    """A TRL batch in `parts` parts by length, tensors `[rows, completion tokens]` cut to the longest row.

    Rows that do not count are left out, or, with `every`, stay with their first token: TRL gathers a number
    for each row, so several processes must have as many in each part. A part without rows is one token that
    does not count: a loss needs something to be a function of, and every process takes as many forward passes
    as the others.
    """
    counting = (inputs["completion_mask"] * inputs["tool_mask"]).any(1)
    lengths, full = inputs["completion_mask"].sum(1) * counting, inputs["completion_mask"].shape[1]
    order = lengths.argsort(stable=True)
    for rows in (order if every else order[counting[order]]).tensor_split(parts):
        if len(rows):
            yield _part(inputs, rows, full, lengths[rows].max().clamp(min=1))
        else:
            blank = _part(inputs, slice(0, 1), full, 1)
            yield blank | {"tool_mask": blank["tool_mask"] * 0}


def _part(inputs: dict[str, Any], rows: Any, full: int, longest: Any) -> dict[str, Any]:
    return {name: _cut(tensor, rows, full, longest) for name, tensor in inputs.items()}


def _cut(tensor: Any, rows: Any, full: int, longest: Any) -> Any:
    if tensor.dim() == 0:
        return tensor
    part = tensor[rows]
    return part[:, :longest] if part.dim() == 2 and part.shape[1] == full else part
