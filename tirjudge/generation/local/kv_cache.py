"""The keys and values of a running batch: one padded row a slot, every row of its own length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

GRAIN = 64
"""Slot lengths are multiples of this many positions, so that growing is rare."""

Snapshot = tuple["Tensor", ...]
"""One row's keys and values, layer by layer, each `[head, position, dim]`."""


@dataclass(slots=True)
class Window:
    """Which slots the next forward pass covers, and where each of them writes."""

    first: int
    last: int
    slots: Tensor
    """`[rows, 1]`, first to last."""
    positions: Tensor
    """`[rows, tokens]`: the position of every token that is fed."""
    length: int
    """Positions that are read: the largest that is written, plus one."""


class PaddedLayer:
    """One layer's keys and values, `[slot, head, position, dim]`, behind transformers' cache-layer interface.

    `update` scatters each row at its own positions, where transformers' own layers append all rows at one.
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
            stored[window.slots, :, window.positions] = new.transpose(1, 2)
            seen.append(stored[window.first : window.last, :, : window.length])
        return seen[0], seen[1]

    def get_seq_length(self) -> int:
        return 0


class PaddedCache:
    """All layers of up to `max_slots` rows. Slots and lengths grow as they are asked for."""

    def __init__(self, layers: int, max_slots: int) -> None:
        from transformers.cache_utils import Cache

        self.window: Window
        self._max_slots = max_slots
        self._slots = self._length = 0
        self._layers = [PaddedLayer(self) for _ in range(layers)]
        self.past_key_values = Cache(layers=self._layers)
        """What the model is called with."""

    def reserve(self, slots: int, length: int) -> None:
        """Make room for `slots` rows of `length` positions; what is stored stays."""
        if slots <= self._slots and length <= self._length:
            return
        if slots > self._slots:
            self._slots = min(self._max_slots, max(slots, 2 * self._slots))
        self._length = max(self._length, -(-length // GRAIN) * GRAIN)
        for layer in self._layers:
            larger = [self.room(stored) for stored in layer.tensors]
            for old, new in zip(layer.tensors, larger, strict=True):
                new[: old.shape[0], :, : old.shape[2]] = old
            layer.tensors = larger

    def room(self, like: Tensor) -> Tensor:
        """Empty slots for heads like these: zeros, because what is masked is still multiplied."""
        return like.new_zeros(self._slots, like.shape[1], self._length, like.shape[3])

    def open(self, first: int, positions: Tensor, length: int) -> None:
        """The next forward pass writes `positions`, `[rows, tokens]`, of the slots from `first` on."""
        import torch

        last = first + positions.shape[0]
        slots = torch.arange(first, last, device=positions.device)[:, None]
        self.window = Window(first, last, slots, positions, length)

    def snapshot(self, slot: int, length: int) -> Snapshot:
        """A copy of a slot's first `length` positions."""
        return tuple(stored[slot, :, :length].clone() for stored in self._tensors())

    def restore(self, slot: int, snapshot: Snapshot) -> None:
        for stored, saved in zip(self._tensors(), snapshot, strict=True):
            stored[slot, :, : saved.shape[1]] = saved

    def copy(self, source: int, target: int, length: int) -> None:
        for stored in self._tensors():
            stored[target, :, :length] = stored[source, :, :length]

    def clear(self) -> None:
        """Give the memory back."""
        self._slots = self._length = 0
        for layer in self._layers:
            layer.tensors = []

    def _tensors(self) -> list[Tensor]:
        return [tensor for layer in self._layers for tensor in layer.tensors]


def _as_computed(new: Tensor) -> Tensor:
    """In the type that attention casts to under autocast, or it would cast the whole cache at every step."""
    import torch

    kind = new.device.type
    cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return new.to(torch.get_autocast_dtype(kind)) if cast else new


Ids = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class ParkedRow:
    """The tokens that were fed, and what the model kept of them."""

    ids: Ids
    snapshot: Snapshot
    prompt: bool
    """A prompt is resumed by every sample of its group, a turn by its own trajectory only."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.snapshot)


class ParkedRows:
    """At most `max_bytes` of parked rows."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rows: dict[ParkedRow, None] = {}
        """In order of last use."""

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, row: ParkedRow) -> None:
        self._rows[row] = None
        self._bytes += row.nbytes
        while self._bytes > self._max_bytes:
            self._remove(next(iter(self._rows)))

    def take(self, ids: Ids) -> ParkedRow | None:
        """The longest row that `ids` extends by at least one token; a turn's row is removed."""
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
    """The last token is compared first: it tells most rows apart."""
    size = len(start)
    return size < len(ids) and bool(ids[size - 1] == start[-1]) and np.array_equal(ids[:size], start)
