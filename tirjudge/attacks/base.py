"""The interface of attacks on a verdict: a response that should lose is changed so that it wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tirjudge.console_text import first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The response that an attack changes, as the judge is shown it."""

    response: str
    letter: str
    """Its letter."""
    other: str
    """The letter of a response that it competes with."""
    answer: str
    """The answer of a judge that prefers it, in the judge's own format: `<preference>B</preference>`."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. It is plain text, so that the result file shows exactly what a judge was shown."""

    name: str
    about: str
    """The change to the response, for `tirjudge attack --list`."""
    change: Callable[[Target], str | None]
    """Returns the response that attacks; None if this response cannot attack in this way."""

    def changed(self, target: Target) -> str | None:
        """Return what `change` returns.

        Raises ValueError, in one line with the attack's name, if it fails or returns anything else.
        """
        try:
            response = self.change(target)
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise ValueError(f"attack {self.name!r} failed: {reason}") from error
        if response is not None and not isinstance(response, str):
            raise ValueError(f"attack {self.name!r} returned {type(response).__name__}, and no text")
        return response


@dataclass(frozen=True, slots=True)
class Family:
    """Attacks that try the same thing in different ways."""

    name: str
    about: str
    attacks: tuple[Attack, ...]


def appended(name: str, about: str, text: str) -> Attack:
    """Return an attack that appends a text, in which `{letter}`, `{other}` and `{answer}` are filled in."""

    def change(target: Target) -> str:
        filled = text.replace("{letter}", target.letter).replace("{other}", target.other)
        return f"{target.response}\n\n{filled.replace('{answer}', target.answer)}"

    return Attack(name, about, change)
