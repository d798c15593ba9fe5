"""The work of a call, in a unit that no machine makes faster."""

from __future__ import annotations

import sys
from collections.abc import Callable


def lines_run(call: Callable[[], object]) -> int:
    """How many lines, calls and returns of Python it takes."""
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
