"""The letters that name responses: A to Z, then AA, AB, and so on."""

from __future__ import annotations

from string import ascii_uppercase


def letter(position: int) -> str:
    """The letter of a shown position, counted from 0: 0 is A, 25 is Z, 26 is AA."""
    name = ""
    number = position + 1
    while number:
        number, digit = divmod(number - 1, len(ascii_uppercase))
        name = ascii_uppercase[digit] + name
    return name


def letters(count: int) -> tuple[str, ...]:
    """The first `count` letters."""
    return tuple(letter(position) for position in range(count))
