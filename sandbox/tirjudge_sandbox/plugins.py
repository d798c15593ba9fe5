"""What installed packages offer by name, ours and third parties', through one entry-point group."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any


@dataclass(frozen=True, slots=True)
class Plugins:
    """The members of a group."""

    group: str
    """Of entry points, such as `tirjudge.sandboxes`."""
    noun: str
    """What a member is, for those who asked for one that is not there."""

    def entries(self) -> list[EntryPoint]:
        """Sorted by name."""
        return sorted(entry_points(group=self.group), key=lambda entry: entry.name)

    def names(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries()))

    def entry(self, name: str) -> EntryPoint:
        """Raises ValueError, in one line, for a name that no package registers, or several do."""
        found = {entry.value: entry for entry in entry_points(group=self.group, name=name)}
        if not found:
            raise ValueError(f"no {self.noun} {name!r}; there are {', '.join(self.names())}")
        if len(found) > 1:
            raise ValueError(f"{self.noun} {name!r} could be several: {', '.join(sorted(found))}")
        (entry,) = found.values()
        return entry

    def load(self, name: str) -> Any:
        """What a name stands for. Raises ValueError as `entry` and `imported` do."""
        return self.imported(self.entry(name))

    def imported(self, entry: EntryPoint) -> Any:
        """What an entry names. Raises ValueError, in one line, where it cannot be imported."""
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{self.noun} {entry.name!r}: cannot import {entry.value}: {error}") from error

    def open(self, name: str, /, *arguments: Any, **options: Any) -> Any:
        """What the entry, called, makes of these. Raises ValueError as `load` does, and for a bad option."""
        make = self.load(name)
        try:
            return make(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.noun} {name!r}: {error}") from error
