"""The KV cache of parked rows: which one a context resumes, and which is evicted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tirjudge.generation.local.kv_cache import ParkedRow, ParkedRows


def row(*ids: int, prompt: bool = False) -> ParkedRow:
    """Return a row whose keys and values take 100 bytes."""
    kept: Any = np.zeros(100, np.uint8)
    return ParkedRow(np.array(ids), (kept,), prompt)


@pytest.fixture
def parked() -> ParkedRows:
    return ParkedRows(300)


def test_the_longest_row_that_a_context_extends_is_resumed(parked: ParkedRows) -> None:
    short, long = row(1, 2), row(1, 2, 3)
    for one in (short, long, row(1, 9, 3, 4)):
        parked.put(one)
    assert parked.take(np.array([1, 2, 3, 4, 5])) is long
    assert parked.take(np.array([1, 2, 3, 4, 5])) is short
    assert parked.take(np.array([1, 2, 3, 4, 5])) is None


def test_a_row_is_resumed_only_if_a_token_is_left_to_feed(parked: ParkedRows) -> None:
    parked.put(row(1, 2, 3))
    assert parked.take(np.array([1, 2, 3])) is None


def test_the_least_recently_used_row_is_evicted_first(parked: ParkedRows) -> None:
    first, second = row(1, prompt=True), row(2, prompt=True)
    for one in (first, second, row(3)):
        parked.put(one)
    parked.take(np.array([1, 5]))
    parked.put(row(4))
    assert len(parked) == 3
    assert parked.take(np.array([2, 5])) is None
    assert parked.take(np.array([1, 5])) is first
