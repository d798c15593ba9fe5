"""Keys and values: a padded cache for the running batch, and the parked rows that may be resumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

GRAIN = 64
"""Slot lengths are multiples of this many positions, so that the cache rarely grows."""

FLOAT32 = 4
"""Bytes of a key's or value's number, until the type of the attention is known."""

Snapshot = tuple["Tensor", ...]
"""One row's keys and values, layer by layer, each `[head, position, dim]`."""


@dataclass(slots=True)
class Window:
    """The slots covered and the positions written by the next forward pass."""

    first: int
    last: int
    slots: Tensor
    """`[rows, 1]`, first to last."""
    positions: Tensor
    """`[rows, tokens]`: the position of every input token."""
    length: int
    """Positions that are read, at least to the largest one written."""


class PaddedLayer:
    """The keys and values of one layer, `[slot, head, position, dim]`, as a cache layer of transformers.

    `update` scatters each row to its own positions; the cache layers of transformers append all rows at the
    same position.
    """

    is_sliding = False
    is_compileable = False
    is_initialized = True

    def __init__(self, cache: PaddedCache) -> None:
        self._cache = cache
        self.tensors: list[Tensor] = []

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        window, pair = self._cache.window, [_as_computed(keys), _as_computed(values)]
        if not self.tensors:
            self.tensors = [self._cache.room(new) for new in pair]
        seen = []
        for stored, new in zip(self.tensors, pair, strict=True):
            # Indices on both sides of a slice come first in the result: `[rows, tokens, head, dim]`.
            stored[window.slots, :, window.positions] = new.transpose(1, 2)
            seen.append(stored[window.first : window.last, :, : window.length])
        return seen[0], seen[1]

    def get_seq_length(self) -> int:
        # Rows differ in length, and every pass brings its own positions and mask.
        return 0


class PaddedCache:
    """The cache of all layers for up to `max_slots` rows; slots and lengths grow on demand."""

    def __init__(self, config: Any, max_slots: int) -> None:
        """`config` is that of a text model."""
        from transformers.cache_utils import Cache

        self.window: Window
        self._max_slots = max_slots
        self.max_bytes = 0
        """The bound that `fits` compares with."""
        layers = config.num_hidden_layers
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._expected = 2 * layers * heads * size * FLOAT32
        self._slots = self._length = 0
        self._layers = [PaddedLayer(self) for _ in range(layers)]
        self.past_key_values = Cache(layers=self._layers)
        """The cache object that the model is called with."""

    @property
    def length(self) -> int:
        """Positions of every slot."""
        return self._length

    @property
    def nbytes(self) -> int:
        return sum(stored.nbytes for stored in self._tensors())

    def fits(self, slots: int, length: int) -> bool:
        """Return True if so many slots of so many positions stay within the bound."""
        stored = self._tensors()
        position = sum(one.shape[1] * one.shape[3] * one.element_size() for one in stored) or self._expected
        return slots * _rounded(length) * position <= self.max_bytes

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` rows of `length` positions, and keep what is stored in these positions."""
        rounded = _rounded(length)
        # Slots also shrink after the longest row has left, because decoding reads the whole of each slot.
        if slots <= self._slots and rounded <= self._length < rounded + 2 * GRAIN:
            return
        # Doubling keeps the number of copies logarithmic in the number of rows.
        wanted = self._slots if slots <= self._slots else min(self._max_slots, max(slots, 2 * self._slots))
        self._slots = wanted if self.fits(wanted, length) else slots
        self._length = rounded
        for layer in self._layers:
            fitting = [self.room(stored) for stored in layer.tensors]
            for old, new in zip(layer.tensors, fitting, strict=True):
                new[: old.shape[0], :, : old.shape[2]] = old[: self._slots, :, :rounded]
            layer.tensors = fitting

    def room(self, like: Tensor) -> Tensor:
        """Return empty slots for the heads and dimension of `like`."""
        # Zeros, because masked positions are still multiplied, and a NaN would spread.
        return like.new_zeros(self._slots, like.shape[1], self._length, like.shape[3])

    def open(self, first: int, positions: Tensor, length: int) -> None:
        """Set the next pass's window: `positions`, `[rows, tokens]`, of the slots from `first` on."""
        import torch

        last = first + positions.shape[0]
        slots = torch.arange(first, last, device=positions.device)[:, None]
        self.window = Window(first, last, slots, positions, length)

    def snapshot(self, slot: int, length: int) -> Snapshot:
        """Copy the first `length` positions of a slot."""
        return tuple(stored[slot, :, :length].clone() for stored in self._tensors())

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        for stored, saved in zip(self._tensors(), snapshot, strict=True):
            stored[slot, :, : saved.shape[1]] = saved

    def copy(self, source: int, target: int, length: int) -> None:
        for stored in self._tensors():
            stored[target, :, :length] = stored[source, :, :length]

    def clear(self) -> None:
        """Free the memory."""
        self._slots = self._length = 0
        for layer in self._layers:
            layer.tensors = []

    def _tensors(self) -> list[Tensor]:
        return [tensor for layer in self._layers for tensor in layer.tensors]


def _rounded(length: int) -> int:
    return -(-length // GRAIN) * GRAIN


def _as_computed(new: Tensor) -> Tensor:
    """Return the tensor in the type that attention uses under autocast."""
    # Stored in another type, the whole cache would be cast at every step.
    import torch

    kind = new.device.type
    cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return new.to(torch.get_autocast_dtype(kind)) if cast else new


Ids = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class ParkedRow:
    """The tokens of a row that left the batch, with their keys and values."""

    ids: Ids
    snapshot: Snapshot
    prompt: bool
    """True for a prompt, resumed by all samples of a group; a turn is resumed by one trajectory alone."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.snapshot)


class ParkedRows:
    """The parked rows, of at most `max_bytes`; the least recently used ones are dropped first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rows: dict[ParkedRow, None] = {}
        """Ordered by last use, the oldest first."""

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: ParkedRow) -> None:
        self._rows[row] = None
        self._bytes += row.nbytes
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._rows)))

    def take(self, ids: Ids) -> ParkedRow | None:
        """Return the longest row that `ids` extends by a token or more; removed unless `prompt` is set."""
        found: ParkedRow | None = None
        for row in self._rows:
            if (found is None or len(row.ids) > len(found.ids)) and _extends(ids, row.ids):
                found = row
        if found is not None:
            self._remove(found)
            if found.prompt:
                self.put(found)
        return found

    def clear(self) -> None:
        self._rows.clear()
        self._bytes = 0

    def _remove(self, row: ParkedRow) -> None:
        del self._rows[row]
        self._bytes -= row.nbytes


def _extends(ids: Ids, start: Ids) -> bool:
    size = len(start)
    # The last token differs between most rows, so it is compared first.
    return size < len(ids) and bool(ids[size - 1] == start[-1]) and np.array_equal(ids[:size], start)
