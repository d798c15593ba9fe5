"""Tests of the paged cache, whose blocks hold here the tokens themselves."""

import random
from typing import Any

import numpy as np
import pytest

from tirjudge.generation.local.batch_generator import BatchRow
from tirjudge.generation.local.paged_cache import PagedCache
from tirjudge.generation.local.sampling import StopStrings

BLOCK, BLOCKS = 4, 24
NONE: Any = None


def row(ids: list[int], answer: int) -> BatchRow:
    return BatchRow(ids=ids, start=len(ids), limit=len(ids) + answer, stops=StopStrings((), NONE))


def feed(cache: PagedCache, array: Any, row: BatchRow) -> None:
    """Store all known tokens of a running row."""
    for place in range(row.fed, len(row.ids)):
        array[cache.blocks[row][place // BLOCK], place % BLOCK] = row.ids[place]
    row.fed = len(row.ids)


def stored(cache: PagedCache, array: Any, row: BatchRow) -> list[int]:
    places: list[int] = np.concatenate([array[block] for block in cache.blocks[row]])[: row.fed].tolist()
    return places


@pytest.mark.parametrize("seed", range(20))
def test_every_row_reads_its_own_tokens_and_no_block_is_lost(seed: int) -> None:
    """Rows with common starts join, write, end, are cancelled and come back in a random order."""
    draw, array = random.Random(seed), np.zeros([BLOCKS, BLOCK], np.int64)
    cache, running, ended = PagedCache([array], BLOCK), list[BatchRow](), list[list[int]]()
    starts = [[draw.randrange(3) for _ in range(20)] for _ in range(3)]
    shared = 0
    for _ in range(400):
        if draw.random() < 0.5:
            start = draw.choice([*starts, *ended[-5:]])
            fresh = row([*start[: draw.randrange(1, 30)], draw.randrange(3)], draw.randrange(1, 20))
            if not cache.follows(fresh) and cache.admit(fresh):
                running.append(fresh)
                assert stored(cache, array, fresh) == fresh.ids[: fresh.fed]
                assert fresh.fed < len(fresh.ids)
                shared += fresh.fed
        elif running:
            one = draw.choice(running)
            feed(cache, array, one)
            if len(one.ids) < one.limit and draw.random() < 0.8:
                one.ids.append(draw.randrange(3))
            else:
                running.remove(one)
                cache.leave(one, park=draw.random() < 0.8)
                ended.append(one.ids)
        for one in running:
            assert stored(cache, array, one) == one.ids[: one.fed]
    assert shared > 100
    whole = row([9], BLOCK * BLOCKS - 1)
    for one in running:
        cache.leave(one, park=True)
    assert cache.admit(whole)
    assert sorted(cache.blocks[whole]) == list(range(BLOCKS))


def test_a_row_that_does_not_fit_waits_for_the_running_rows() -> None:
    cache = PagedCache([np.zeros([BLOCKS, BLOCK])], BLOCK)
    first, second = row([1, 2], BLOCK * (BLOCKS - 2)), row([3, 4], 3 * BLOCK)
    assert cache.admit(first)
    assert not cache.admit(second)
    cache.leave(first, park=True)
    assert cache.admit(second)


def test_a_row_waits_for_the_start_that_a_running_row_has_yet_to_store() -> None:
    array = np.zeros([BLOCKS, BLOCK], np.int64)
    cache, first = PagedCache([array], BLOCK), row([1, 2, 3, 4, 5, 6], 4)
    cache.admit(first)
    same, other = row([1, 2, 3, 4, 5, 6], 4), row([1, 2, 3, 9], 4)
    assert cache.follows(same)
    assert not cache.follows(other)
    feed(cache, array, first)
    assert not cache.follows(same)
    assert cache.admit(same)
    assert same.fed == 5
