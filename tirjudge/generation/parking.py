"""Rows that left the batch and may come back; the least recently used are given up first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tirjudge.generation.kv_cache import Snapshot

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
