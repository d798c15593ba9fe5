"""An honest program: its source and input, and the output that it must print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Honest:
    """A program that a judge would plausibly write.

    `expected` is its standard output, stated by hand, by arithmetic or by the paper that has the program.
    """

    name: str
    source: str
    expected: str
    bindings: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    needs: str = ""
    """A need that some placements do not meet: `files` that it may write, `processes` or programs that
    it may start, or `ctypes` and `multiprocessing`, which the import policy refuses."""


LACKING = {
    "root": {"processes"},
    "userns": {"processes"},
    "own-uid": {"processes", "files"},
    "plain": {"processes", "files"},
    "docker": {"processes"},
    "policy": {"processes", "multiprocessing", "ctypes"},
}
"""The needs that each placement does not meet, as docs/sandbox.md says. Programs with one end badly there."""
