"""The generator contract: a context goes in, one turn of the judge comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tirjudge_environments import Completion, Context, Encoder
from tirjudge_sandbox.plugins import Plugins


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


GENERATORS = Plugins("tirjudge.generators", "generator")
"""Each entry is called with a model and the options of `open_generator`, and gives a `Generator`."""


def generator_names() -> tuple[str, ...]:
    """The names that `open_generator` knows, sorted."""
    return GENERATORS.names()


def open_generator(name: str, model: str, /, *, max_rows: int = 32, **options: Any) -> Generator:
    """The generator of this name, around a model.

    `model`: what the generator can make one of: ours take a local folder or a hub id. `max_rows`: how many
    completions it may be asked for at once. Options are its own; keys are none of them and come from the
    environment. Raises GeneratorFailed for a model that cannot be had, ValueError for an unknown name or a
    bad option; each in one line.
    """
    return cast(Generator, GENERATORS.open(name, model, max_rows=max_rows, **options))


class BusyClock:
    """Wall time in which at least one piece of work was under way. One thread works, any may look."""

    def __init__(self) -> None:
        self.running = 0
        """Pieces that are at work now."""
        self._state: tuple[float, float | None] = (0.0, None)
        """Seconds, and since when there are more; one attribute, so that no thread sees half of a change."""

    @property
    def seconds(self) -> float:
        """Up to now, what is under way included."""
        before, since = self._state
        return before if since is None else before + time.perf_counter() - since

    @contextmanager
    def working(self) -> Iterator[None]:
        if not self.running:
            self._state = (self.seconds, time.perf_counter())
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._state = (self.seconds, None)
