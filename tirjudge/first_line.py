"""What a library's error says, without the advice on its other lines."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line that is not empty; the name of the error's class where there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
