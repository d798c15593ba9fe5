"""Compact row ids against lists and dicts of texts; and the memory that they take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tirjudge.evaluation.row_ids import RowIds

TEXTS = st.lists(
    st.text(st.characters(codec=None), max_size=6) | st.sampled_from(["", "a", "a\x00", "b" * 80, "\ud800"])
)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_they_hold_what_a_dict_holds(ids: list[str], others: list[str]) -> None:
    known: dict[str, int] = {}
    rows = RowIds()
    for id in ids:
        assert rows.add(id) == (id not in known)
        known.setdefault(id, len(known))
    assert list(rows) == list(known)
    assert len(rows) == len(known)
    assert rows[:] == tuple(known)
    for id in (*ids, *others):
        assert rows.find(id) == known.get(id, -1)
        assert (id in rows) == (id in known)
    assert rows.positions(RowIds(others)).tolist() == [known.get(id, -1) for id in dict.fromkeys(others)]


@settings(deadline=None)
@given(TEXTS)
@example(["a\x00", "a"])
@example(["b" * 80, "a"])
@example(["\uffff", "\U00010000", "\ud800"])
def test_their_order_is_that_of_sorted_texts(ids: list[str]) -> None:
    rows = RowIds(ids)
    assert [rows[int(place)] for place in rows.order()] == sorted(set(ids))


@pytest.mark.parametrize("count", [0, 1, 8, 9, 1000])
def test_they_are_equal_in_the_same_order_alone(count: int) -> None:
    ids = [f"row {number}" for number in range(count)]
    assert RowIds(ids) == RowIds(ids)
    assert (RowIds(ids) == RowIds(reversed(ids))) == (count < 2)
    assert RowIds(ids) != RowIds([*ids, "another"])
    assert RowIds(ids) == tuple(ids)
    assert RowIds(ids) != ids


def test_a_position_outside_is_an_index_error() -> None:
    rows = RowIds(["a", "b"])
    assert rows[-1] == "b"
    with pytest.raises(IndexError):
        rows[2]


def test_a_hundred_thousand_ids_take_less_than_fifty_bytes_each() -> None:
    ids = [f"pair-{number}" for number in range(100_000)]
    tracemalloc.start()
    rows = RowIds(ids)
    taken, most = tracemalloc.get_traced_memory()
    order = rows.order()
    sorting = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 50 * len(ids)
    assert max(most, sorting) < 80 * len(ids)
    assert np.array_equal(order, np.argsort(np.array(ids), kind="stable"))
