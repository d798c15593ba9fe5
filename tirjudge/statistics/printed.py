"""Numbers and intervals as commands, summaries and reports print them, and as records hold them.

An interval that is not known has nan for its bounds: it is left out of texts, and None in records.
"""

from __future__ import annotations

import math

SHARE = ".1%"
"""The format of shares in summaries and reports, such as `87.5%`."""


def bracketed(low: float, high: float, form: str = SHARE) -> str:
    """Return the bounds of an interval in brackets, such as `[52.9%, 97.8%]`.

    The text is empty if the interval is not known.
    """
    return "" if math.isnan(low) else f"[{low:{form}}, {high:{form}}]"


def estimated(value: float, low: float, high: float, form: str = SHARE) -> str:
    """Return a number with its interval, such as `87.5% [52.9%, 97.8%]`; a bound may be nan."""
    return f"{value:{form}} {bracketed(low, high, form)}".rstrip()


def percent(share: float) -> str:
    """Return a share as evaluations print it, such as `52.05 %`."""
    return f"{100 * share:.2f} %"


def estimated_percent(share: float, low: float, high: float) -> str:
    """Return a share with its interval as evaluations print it, such as `52.05 % [47.92, 56.16]`."""
    return f"{percent(share)} {bracketed(100 * low, 100 * high, '.2f')}".rstrip()


def printed_figure(value: float, *, is_share: bool, signed: bool = False, unknown: str = "-") -> str:
    """Return a figure as a table of a protocol shows it: 100 times a share, and `unknown` for nan."""
    if math.isnan(value):
        return unknown
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.2f}" if is_share else f"{value:{sign}.4g}"


def bounds_record(value: float, low: float, high: float) -> dict[str, float | None]:
    """Return a number and its interval as JSON values; None for a bound that is not finite."""
    named = {"value": value, "low": low, "high": high}
    return {name: number if math.isfinite(number) else None for name, number in named.items()}
