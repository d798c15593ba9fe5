"""Row ids as a compact set in insertion order, for runs of millions of rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

_FREE = -1
_LONGEST_FIXED = 64
"""Bytes of an id up to which ids are sorted as an array of fixed width."""


class RowIds(Sequence[str]):
    """Distinct ids in the order in which they were added; each is found by its hash.

    An id takes its own bytes and 16 to 40 more, where a dict of texts takes about 150.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        """Ids that occur again are dropped."""
        self._text = bytearray()
        self._ends = array("Q", [0])
        # Open addressing with linear probing: positions of ids, of which at most half are taken.
        self._slots = array("i", [_FREE]) * 16
        for id in ids:
            self.add(id)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        return _decoded(self._bytes(range(len(self))[place]))

    def __iter__(self) -> Iterator[str]:
        return map(_decoded, self._all_bytes())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.find(id) >= 0

    def __eq__(self, other: object) -> bool:
        """Return True for the same ids in the same order, also in a tuple."""
        if isinstance(other, tuple):
            return tuple(self) == other
        if not isinstance(other, RowIds):
            return NotImplemented
        return self._ends == other._ends and self._text == other._text

    __hash__ = None  # type: ignore[assignment]

    def add(self, id: str) -> bool:
        """Add an id; return False if it was there."""
        key = _encoded(id)
        slot = self._slot(key)
        if self._slots[slot] != _FREE:
            return False
        self._slots[slot] = len(self)
        self._text += key
        self._ends.append(len(self._text))
        if 2 * len(self) > len(self._slots):
            self._grow()
        return True

    def find(self, id: str) -> int:
        """Return the position of an id; -1 if it is not there."""
        return self._slots[self._slot(_encoded(id))]

    def positions(self, ids: RowIds) -> NDArray[np.intp]:
        """Return the position here of each of these ids, -1 for those that are not there."""
        found = (self._slots[self._slot(key)] for key in ids._all_bytes())
        return np.fromiter(found, dtype=np.intp, count=len(ids))

    def order(self) -> NDArray[np.intp]:
        """Return the positions in ascending order of the ids."""
        ends = np.frombuffer(self._ends, dtype=np.uint64)
        width = int(np.diff(ends).max(initial=0))
        # numpy drops null bytes at the end of a text, so that texts with them could not be told apart.
        if width and width <= _LONGEST_FIXED and 0 not in self._text:
            fixed = np.fromiter(self._all_bytes(), dtype=f"S{width}", count=len(self))
            return fixed.argsort(kind="stable")
        return np.array(sorted(range(len(self)), key=self._bytes), dtype=np.intp)

    def _bytes(self, place: int) -> bytes:
        return bytes(self._text[self._ends[place] : self._ends[place + 1]])

    def _all_bytes(self) -> Iterator[bytes]:
        return map(self._bytes, range(len(self)))

    def _slot(self, key: bytes) -> int:
        """Return the slot of an id, or the free one where it belongs."""
        last = len(self._slots) - 1
        slot = hash(key) & last
        slots, text, ends = self._slots, self._text, self._ends
        while (place := slots[slot]) != _FREE and text[ends[place] : ends[place + 1]] != key:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        self._slots = array("i", [_FREE]) * (2 * len(self._slots))
        for place, key in enumerate(self._all_bytes()):
            self._slots[self._slot(key)] = place


def _encoded(id: str) -> bytes:
    # UTF-8 has the order of code points; JSON may hold lone surrogates.
    return id.encode("utf-8", "surrogatepass")


def _decoded(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
