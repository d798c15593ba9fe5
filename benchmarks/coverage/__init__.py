"""Coverage of the intervals and type I error of the tests that tirjudge prints."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.coverage.rows import equal_cases
from benchmarks.coverage.simulation import Case, Found, measured
from benchmarks.coverage.unequal import unequal_cases


def cases() -> Iterator[Case]:
    """Yield every case."""
    yield from equal_cases()
    yield from unequal_cases()


__all__ = ["Case", "Found", "cases", "measured"]
