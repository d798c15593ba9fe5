"""Properties of the letter case of a unit."""

from __future__ import annotations

import re

from research.smol.training_rows.kinds.properties import Arguments, Property
from research.smol.training_rows.writing import Pen


class Capitalised(Property):
    name = "capital"
    phrases = (
        "start with a capital letter|starts with a capital letter",
        "begin with an uppercase letter|begins with an uppercase letter",
        "be capitalised|is capitalised",
        "have a capital as its first character|has a capital as its first character",
        "open with an upper-case letter|opens with an upper-case letter",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}[:1].isupper()"

    def holds(self, part: str, given: Arguments) -> bool:
        return bool(part) and part[0] != part[0].lower()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        part = part.lstrip("*\"'(-#> 0123456789.)")
        return part[:1].upper() + part[1:]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part[:1].lower() + part[1:]


class SmallFirst(Capitalised):
    name = "small"
    phrases = (
        "start with a lowercase letter|starts with a lowercase letter",
        "begin with a small letter|begins with a small letter",
        "have a lower-case letter at its start|has a lower-case letter at its start",
        "open with a small letter|opens with a small letter",
        "not be capitalised but start with a small letter|is not capitalised but starts with a small letter",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}[:1].islower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return bool(part) and part[0] != part[0].upper()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        part = part.lstrip("*\"'(-#> 0123456789.)")
        return part[:1].lower() + part[1:]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part[:1].upper() + part[1:]


class Upper(Property):
    name = "upper"
    phrases = (
        "be in capital letters|is in capital letters",
        "be written in all caps|is written in all caps",
        "use uppercase letters only|uses uppercase letters only",
        "be entirely uppercase|is entirely uppercase",
        "be shouted in CAPITALS|is shouted in CAPITALS",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.isupper()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part == part.upper() and part != part.lower()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.upper()

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.capitalize() if pen.chance(0.5) else part[:-4] + part[-4:].lower()


class Lower(Property):
    name = "lower"
    phrases = (
        "be in lowercase|is in lowercase",
        "be written in small letters|is written in small letters",
        "use lowercase letters only|uses lowercase letters only",
        "have no capital letters|has no capital letters",
        "be entirely lowercase|is entirely lowercase",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.islower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part == part.lower() and part != part.upper()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.lower()

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return re.sub(r"[^\W\d_]", lambda match: match[0].upper(), part, count=1)
