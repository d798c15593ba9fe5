"""The generator contract: a context goes in, one turn of the judge comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tirjudge_environments import Completion, Context, Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one turn is drawn."""

    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    max_tokens: int = 4096
    """New tokens of this turn."""
    seed: int = 0
    """Every row has its own; the same seed and context give the same completion, whatever else is running."""


class GeneratorFailed(RuntimeError):
    """The model or its endpoint could not answer; the text is one line and holds no key."""


class ContextTooLong(GeneratorFailed):
    """The context leaves the model no room for an answer."""


class Withheld(GeneratorFailed):
    """A filter of the endpoint's kept the answer back: asking the same again will not help."""


class Generator(Protocol):
    """A model. Stateless as seen from here; inside, a context that extends an earlier one may resume it."""

    @property
    def model(self) -> str:
        """The name that result rows carry."""
        ...

    @property
    def encoder(self) -> Encoder | None:
        """Turns text into this model's ids; None when the endpoint takes only text."""
        ...

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """One turn. Cancelling frees whatever it holds. Raises GeneratorFailed, ContextTooLong among it."""
        ...

    async def close(self) -> None: ...
