"""Generators by name, third parties' included, through the entry-point group `tirjudge.generators`."""

from __future__ import annotations

from typing import Any, cast

from tirjudge.generation.base import Generator
from tirjudge_sandbox.registry import Plugins

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
