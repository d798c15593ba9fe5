"""What a typed class refuses, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError


def first_fault(error: ValidationError, whole: str = "") -> str:
    """`field.inner: what is wrong with it`; `whole` is the place of what is wrong with all of it."""
    return fault_line(error.errors(include_url=False, include_input=False)[0], whole)


def fault_line(fault: Mapping[str, Any], whole: str = "") -> str:
    """One of pydantic's faults."""
    place = ".".join(map(str, fault["loc"])) or whole
    reason = str(fault["msg"]).removeprefix("Value error, ")
    return f"{place}: {reason}" if place else reason
