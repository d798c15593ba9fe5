"""The benchmarks of attacks: memory that a program is known to hold is found, and percentiles are right."""

from __future__ import annotations

import pytest

from benchmarks.sandbox_memory import MIB, _peak, _shown
from benchmarks.sandbox_spinners import _percentile
from tirjudge_sandbox.workers.memory_group import MemoryGroup


def test_the_memory_of_all_processes_is_counted():
    """Five processes hold up to 16 MiB of objects each, and copies of some of a bare worker's pages."""
    group = MemoryGroup.create()
    if group is None or "memory/" not in group.processes:
        pytest.skip("this user may make no memory control group of version 1")
    group.discard()
    assert 5 * 13 * MIB < _peak("root, no control groups", "objects") < 5 * 24 * MIB


def test_percentiles_are_nearest_ranks():
    hundred = list(range(1, 101))
    assert [_percentile(hundred, of) for of in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert [_percentile([3, 5, 8], of) for of in (50, 95, 99, 100)] == [5, 8, 8, 8]


def test_what_was_stopped_is_shown_as_such():
    assert [_shown(150 * MIB), _shown(2047 * MIB)] == ["150", "over 2048"]
