"""Sources by name, third parties' included, through the entry-point group `tirjudge.sources`."""

from __future__ import annotations

from typing import Any, cast

from tirjudge_sandbox.registry import Plugins
from tirjudge_training.corpora.base import Source

SOURCES = Plugins("tirjudge.sources", "source")
"""Each entry is called without arguments and gives a `Source`."""


def source_names() -> tuple[str, ...]:
    """The names that `open_source` knows, sorted."""
    return SOURCES.names()


def open_source(name: str) -> Source[Any]:
    """Raises ValueError, in one line, for a name that there is not."""
    return cast(Source[Any], SOURCES.open(name))
