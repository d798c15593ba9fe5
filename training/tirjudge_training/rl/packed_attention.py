"""The attention of packed rows on a GPU: a row sees itself alone, and rows of one prompt compute it once.

`sdpa` keeps packed rows apart by a mask of all tokens by all tokens, with which torch cannot use its flash
kernel. The kernel for sequences of several lengths (`torch.nn.attention.varlen`) needs no mask, and its
queries may have more keys than there are queries: so a prompt's keys and values serve all of its rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tirjudge.generation.local.transformers import layer_kinds
from tirjudge_training.distributed.device import current_device

if TYPE_CHECKING:
    from torch import Tensor

NAME = "tirjudge_packed"
"""The name of this attention in transformers."""
TYPES = frozenset({"torch.bfloat16", "torch.float16"})
"""The types that the kernel takes."""


@dataclass(slots=True)
class Pack:
    """The places of some rows in one sequence of tokens.

    The sequence consists of sections, each with queries of its own: a prompt that several rows share, what a
    row has after it, or a whole row. Keys and values of a section are its own tokens, after those of the
    prompt that it shares.
    """

    places: Tensor
    """For each token of the sequence, its place in the flattened rows `[rows * tokens]`."""
    keys: Tensor | None
    """For each key of all sections, its place in the sequence; None if the keys are the tokens themselves."""
    query_ends: Tensor
    """The sum of the sections' queries up to each section, from 0."""
    key_ends: Tensor
    longest_query: int
    longest_keys: int
    reached: bool = False
    """True once a layer has computed its attention by these sections."""

    def follow(self, model: Any) -> None:
        """Raise RuntimeError if the last pass of a model has not used these sections."""
        if not self.reached:
            raise RuntimeError(
                f"{type(model).__name__} passes no arguments on to its attention: leave out rl.token_budget"
            )


def prefixes(ids: Tensor, scored: Tensor) -> list[tuple[int, ...]]:
    """Return what each row `[tokens]` has before the token that predicts its first scored one.

    Rows with equal prefixes can share them. A row without a scored token has an empty one.
    """
    # The hidden state that predicts the first scored token belongs to the row, not to its prompt.
    ends = (scored.int().argmax(1) - 1).clamp(min=0).tolist()
    return [tuple(row[:end]) for row, end in zip(ids.tolist(), ends, strict=True)]


def pack(ids: Tensor, attention: Tensor, scored: Tensor) -> Pack:
    """Return the places of the rows `[rows, tokens]`, padded on the right, in one sequence."""
    import torch

    width, lengths = ids.shape[1], attention.sum(1).tolist()
    owners: dict[tuple[int, ...], list[int]] = {}
    for row, prefix in enumerate(prefixes(ids, scored)):
        owners.setdefault(prefix, []).append(row)
    places: list[np.ndarray[Any, Any]] = []
    keys: list[np.ndarray[Any, Any]] = []
    queries: list[int] = []
    done = 0

    def section(row: int, start: int, end: int, before: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Append a section with tokens of one row; return the places of its keys."""
        nonlocal done
        places.append(np.arange(row * width + start, row * width + end))
        keys.append(np.concatenate([before, np.arange(done, done + end - start)]))
        queries.append(end - start)
        done += end - start
        return keys[-1]

    nothing = np.arange(0)
    for prefix, rows in owners.items():
        shared = len(prefix) if len(rows) > 1 else 0
        before = section(rows[0], 0, shared, nothing) if shared else nothing
        for row in rows:
            section(row, shared, lengths[row], before)
    together = [len(part) for part in keys]

    def moved(values: Any) -> Tensor:
        return torch.as_tensor(values, device=ids.device)

    return Pack(
        places=moved(np.concatenate(places)),
        keys=moved(np.concatenate(keys)) if sum(together) > done else None,
        query_ends=moved(_ends(queries)),
        key_ends=moved(_ends(together)),
        longest_query=max(queries),
        longest_keys=max(together),
    )


def _ends(lengths: Sequence[int]) -> np.ndarray[Any, Any]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    pack: Pack | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of a pack, `[1, heads, tokens, dim]`; without one, what `sdpa` computes."""
    if pack is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        seen, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
        return seen, None
    from torch.nn.attention import varlen

    pack.reached = True
    dtype = _dtype(query.device.type, query.dtype)
    # The kernel takes `[tokens, heads, dim]`.
    queries, keys, values = (one[0].transpose(0, 1).to(dtype) for one in (query, key, value))
    grouped: dict[str, Any] = {}
    if "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters:
        grouped = {"enable_gqa": True}
    else:
        repeated = query.shape[1] // key.shape[1]
        keys, values = (one.repeat_interleave(repeated, 1) for one in (keys, values))
    attended: Any = varlen.varlen_attn(
        queries,
        keys if pack.keys is None else keys[pack.keys],
        values if pack.keys is None else values[pack.keys],
        pack.query_ends,
        pack.key_ends,
        pack.longest_query,
        pack.longest_keys,
        scale=scaling,
        window_size=(-1, 0),  # causal, with the last query at the last key
        **grouped,
    )
    return attended[None], None


def packs_rows(model: Any) -> bool:
    """Return True if `pack_rows` gave the model, which DDP may have wrapped, the attention of packed rows.

    In a pass in another type than the kernel takes, a mask keeps rows apart.
    """
    network = getattr(model, "module", model)
    packs = network.config.get_text_config()._attn_implementation == NAME
    return bool(packs) and str(_dtype(network.device.type, network.dtype)) in TYPES


def _dtype(device: str, stored: Any) -> Any:
    """Return the type in which attention is computed: autocast's, or else that of the weights."""
    import torch

    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else stored


def can_pack(model: Any) -> bool:
    """Return True for a model whose tokens see all tokens before them, on a GPU, which the kernel needs."""
    config = model.config.get_text_config()
    return (
        current_device().device == "cuda"
        and config._attn_implementation == "sdpa"
        and model._supports_attention_backend
        and layer_kinds(config) == {"full_attention"}
        and not getattr(config, "attn_logit_softcapping", None)
    )


def pack_rows(model: Any) -> None:
    """Give a model the attention of packed rows; passes without a pack are computed as with `sdpa`."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.config.get_text_config()._attn_implementation = NAME
