"""Continuous batching: rows join and leave a running batch between any two steps.

transformers has continuous batching too (`generate_batch`, over a paged cache). This one exists because a
judge needs what that one (5.23) does not offer: stop strings; a seed per row, so that a row's tokens do not
depend on the other rows (transformers draws all rows from one generator); and a row that comes back with a
program's output and resumes its own keys and values (transformers shares full pages of a prefix between rows
that run). It is also faster on a CPU: greedily, with the same tokens in every row, 1.7, 1.8 and 3.7 times the
tokens per second with 1, 16 and 64 rows (medians of 5 runs, 0.92 M random parameters, seed 0, 100 new tokens
a row, two cores under a load of 10):
`python -m benchmarks.generation_throughput --only 'generation/paged/*'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tirjudge.generation.local.batch_generator import BatchRow, RowDecoder
from tirjudge.generation.local.kv_cache import PaddedCache, ParkedRow, ParkedRows
from tirjudge.generation.local.sampling import draw
from tirjudge.models.machine import free_memory

if TYPE_CHECKING:
    from torch import Tensor

FEED = 8
"""Up to so many known tokens of a row are fed one per step, with the sampling rows; more are prefilled."""
PASS_COLUMNS = 1024
"""Tokens of one row in a prefill pass."""
PASS_TOKENS = 8192
"""Tokens of all rows in a prefill pass, padding included."""
SHARE = 0.8
"""The part of the free memory that keys and values may take."""
MARGIN = 128
"""Free positions, for growth, that a row needs at admission."""


class Decoder(RowDecoder):
    """Decodes rows with any transformers causal LM that takes a cache, position ids and a 4D attention mask.

    The running row i has slot i of the cache.
    """

    def __init__(
        self,
        model: Any,
        *,
        ends: Iterable[int],
        max_rows: int,
        max_context: int,
        parked_bytes: int,
        cache_bytes: int | None = None,
    ) -> None:
        """For the arguments see `TransformersGenerator`."""
        super().__init__(ends, max_rows)
        self._model = model
        self._max_context = max_context
        self._cache = PaddedCache(model.config.get_text_config(), max_rows)
        self._cache_bytes = cache_bytes
        self._parked = ParkedRows(parked_bytes)

    def forget(self) -> None:
        super().forget()
        self._parked.clear()
        self._cache.clear()

    def _sample(self) -> None:
        while len(self._rows) > 1 and not self._cache.fits(len(self._rows), self._longest + 1):
            self._put_back()
        rows = self._rows
        logits = self._feed(0, [row.ids[row.fed : row.fed + 1] for row in rows])
        tokens, logprobs = draw(logits, [row.uniform for row in rows], [row.sampling for row in rows])
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            # A row that still has known tokens to feed takes no sample yet.
            if row.fed == len(row.ids):
                row.accept(token, logprob, self._ends)

    def _leave(self, leaves: Callable[[BatchRow], bool]) -> list[BatchRow]:
        gone = []
        # From the last slot on, so that a row that moves into a free slot has been looked at already.
        for slot in reversed(range(len(self._rows))):
            row = self._rows[slot]
            if not leaves(row):
                continue
            gone.append(row)
            if not row.cancelled:
                self._park(slot, prompt=False)
            # The last row moves into the free slot, so that running rows always fill the first slots.
            last = self._rows.pop()
            if last is not row:
                self._rows[slot] = last
                self._cache.copy(len(self._rows), slot, last.fed)
        return gone[::-1]

    def _admit(self) -> None:
        if not self._rows:
            # What other programs leave free may have changed since the last batch.
            self._cache.max_bytes = self._cache_bytes or _room(self._model.device, self._cache.nbytes)
        free = self._fitting(self._waiting[: self._max_rows - len(self._rows)])
        ready, self._waiting = self._waiting[:free], self._waiting[free:]
        same: dict[tuple[int, ...], list[BatchRow]] = {}
        for row in ready:
            # Samples of one group have equal contexts, which are prefilled once.
            same.setdefault(tuple(row.ids), []).append(row)
        if same:
            self._join(list(same.values()))

    @property
    def _longest(self) -> int:
        return max((row.fed for row in self._rows), default=0)

    def _fitting(self, rows: list[BatchRow]) -> int:
        """Return how many rows, in order, fit into the cache beside running rows; a row alone always fits."""
        longest, running = self._longest, len(self._rows)
        for number, row in enumerate(rows):
            longest = max(longest, len(row.ids))
            if running + number and not self._cache.fits(running + number + 1, longest + MARGIN):
                return number
        return len(rows)

    def _put_back(self) -> None:
        """Let the row in the last slot wait until there is room; its tokens so far are kept."""
        self._park(len(self._rows) - 1, prompt=False)
        row = self._rows.pop()
        row.resumes = True
        self._waiting.insert(0, row)

    def _join(self, groups: list[list[BatchRow]]) -> None:
        """Prefill the first row of each group of equal contexts, and copy it to the group's other rows.

        A context that extends a parked row resumes the row: only new tokens are fed.
        """
        parked = {group[0]: self._parked.take(np.array(group[0].ids)) for group in groups}
        for row, found in parked.items():
            row.fed = len(found.ids) if found else 0
        groups.sort(key=lambda group: group[0].pending, reverse=True)
        leaders = [group[0] for group in groups]
        first = len(self._rows)
        self._rows += leaders
        self._cache.reserve(first + sum(map(len, groups)), max(row.fed for row in self._rows))
        for slot, row in enumerate(leaders, first):
            if found := parked[row]:
                self._cache.restore(slot, found.snapshot)
        self._prefill(first, [row for row in leaders if row.pending > FEED])
        for slot, group in enumerate(groups, first):
            if parked[group[0]] is None and group[0].fed:
                self._park(slot, prompt=True)
            for row in group[1:]:
                row.fed = group[0].fed
                self._cache.copy(slot, len(self._rows), row.fed)
                self._rows.append(row)

    def _prefill(self, first: int, rows: list[BatchRow]) -> None:
        """Feed all but the last known token of each row, in passes of rows of similar length.

        rows: from slot `first` on, the longest first.
        """
        while rows:
            longest = rows[0].pending
            most = max(1, PASS_TOKENS // min(longest, PASS_COLUMNS))
            # Rows of similar length share a pass: at most a quarter of it is padding, which a CPU pays for.
            together = [row for row in rows[:most] if 4 * row.pending >= 3 * longest]
            while any(row.pending for row in together):
                self._feed(first, [row.ids[row.fed : -1][:PASS_COLUMNS] for row in together])
            first += len(together)
            rows = rows[len(together) :]

    def _feed(self, first: int, tokens: list[list[int]]) -> Tensor:
        """Run `tokens` of the rows from slot `first` on through the model.

        Returns the logits of the last column, `[rows, vocabulary]`.
        """
        import torch

        # Shorter rows are padded on the right. Padding is written after the end of the row, and overwritten
        # before any read.

        rows = self._rows[first : first + len(tokens)]
        columns = max(map(len, tokens))
        length = min(max(row.fed for row in rows) + columns, self._max_context)
        self._cache.reserve(len(self._rows), max(length, *(row.fed for row in self._rows)))
        if columns == 1:
            # Whole slots have no gaps between them, which makes the matrix products of decoding faster.
            length = self._cache.length
        device = self._model.device
        ids = torch.tensor([fed + [0] * (columns - len(fed)) for fed in tokens], device=device)
        starts = torch.tensor([[row.fed] for row in rows], device=device)
        # Only padding can lie beyond the last position that the model knows.
        positions = (starts + torch.arange(columns, device=device)).clamp_(max=self._max_context - 1)
        self._cache.open(first, positions, length)
        hidden = torch.arange(length, device=device) > positions[:, None, :, None]
        mask = torch.zeros(hidden.shape, dtype=self._model.dtype, device=device)
        logits: Tensor = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask.masked_fill_(hidden, torch.finfo(mask.dtype).min),
            past_key_values=self._cache.past_key_values,
            use_cache=True,
            # Not 1: the output layer would copy its weights for each row of a view with gaps.
            logits_to_keep=torch.tensor([columns - 1], device=device),
        ).logits[:, -1]
        for row, fed in zip(rows, tokens, strict=True):
            row.fed += len(fed)
            self.tokens_fed += len(fed)
        return logits

    def _park(self, slot: int, *, prompt: bool) -> None:
        row = self._rows[slot]
        if row.fed:
            snapshot = self._cache.snapshot(slot, row.fed)
            self._parked.put(ParkedRow(np.array(row.ids[: row.fed]), snapshot, prompt))


def _room(device: Any, held: int) -> int:
    """Return the bytes that keys and values may take: a share of the held and free bytes of a device."""
    import torch

    if device.type != "cuda":
        return int(SHARE * (held + free_memory()))
    # What torch keeps for later tensors is free as well.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(SHARE * (held + torch.cuda.mem_get_info(device)[0] + kept))
