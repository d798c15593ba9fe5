"""A cache of keys and values in blocks of tokens, which rows with a common start share."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from tirjudge.generation.local.batch_generator import BatchRow

Array = np.ndarray[Any, np.dtype[Any]]


class PagedCache:
    """The blocks of the running rows, and of rows that have ended, until the space is needed.

    A row is admitted when blocks are free for its longest possible answer, so that no row has to wait in the
    middle. It takes over what another row, running or ended, has stored of a common start: full blocks are
    shared, and the block after them is copied.
    """

    def __init__(self, arrays: Sequence[Array], block: int) -> None:
        """arrays: of each layer's keys and of its values, `[blocks, ...]`; `block` is in tokens."""
        self.block = block
        self._arrays = arrays
        self._free = list(range(len(arrays[0])))
        self._users: Counter[int] = Counter()
        """The number of rows that hold a block, by block. A free block has no entry."""
        self._running: dict[BatchRow, list[int]] = {}
        self._parked: deque[tuple[list[int], list[int]]] = deque()
        """Tokens with stored keys and values, and the blocks of these tokens; the oldest row comes first."""

    @property
    def blocks(self) -> Mapping[BatchRow, Sequence[int]]:
        """The blocks of each running row, in order."""
        return self._running

    def follows(self, row: BatchRow) -> bool:
        """Return True if a running row has yet to store at least a block that this row could share."""
        return any(common_start(row.ids, other.ids) - other.fed >= self.block for other in self._running)

    def admit(self, row: BatchRow) -> bool:
        """Give blocks to a row and set the row's stored tokens; return False if too few blocks are free."""
        starts = [
            (min(common_start(row.ids, other.ids), other.fed), blocks)
            for other, blocks in self._running.items()
        ]
        starts += [(common_start(row.ids, ids), blocks) for ids, blocks in self._parked]
        common, blocks = max(starts, key=itemgetter(0), default=(0, []))
        # The last token is always fed, for the logits of the next one.
        common = min(common, len(row.ids) - 1)
        # Without space for the copy of a block, its tokens are fed again.
        return self._take(row, common, blocks) or self._take(row, common // self.block * self.block, blocks)

    def leave(self, row: BatchRow, *, park: bool) -> None:
        """Free the blocks of a row, or park the stored tokens for rows with a common start."""
        blocks = self._running.pop(row)
        kept = -(-row.fed // self.block) if park else 0
        self._release(blocks[kept:])
        if kept:
            self._parked.append((row.ids[: row.fed], blocks[:kept]))

    def clear(self) -> None:
        for blocks in (*self._running.values(), *(blocks for _, blocks in self._parked)):
            self._release(blocks)
        self._running.clear()
        self._parked.clear()

    def _take(self, row: BatchRow, common: int, blocks: Sequence[int]) -> bool:
        full = common // self.block
        shared, copied = blocks[:full], blocks[full : -(-common // self.block)]
        wanted = -(-row.limit // self.block) - full
        kept = {*shared, *copied}.union(*self._running.values())
        if wanted > len(self._free) + len(self._users.keys() - kept):
            return False
        self._users.update([*shared, *copied])
        while len(self._free) < wanted:
            self._release(self._parked.popleft()[1])
        own = [self._free.pop() for _ in range(wanted)]
        self._users.update(own)
        for array in self._arrays if copied else ():
            array[own[0]] = array[copied[0]]
        self._release(copied)
        self._running[row], row.fed = [*shared, *own], common
        for stored in [stored for stored in self._parked if stored[0] == row.ids[: len(stored[0])]]:
            # Whatever can share with the ended row can share with this one.
            self._parked.remove(stored)
            self._release(stored[1])
        return True

    def _release(self, blocks: Sequence[int]) -> None:
        self._users.subtract(blocks)
        for block in blocks:
            if not self._users[block]:
                del self._users[block]
                self._free.append(block)


def common_start(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both sequences start."""
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place
    return min(len(first), len(second))
