"""Named extensions: the entry points of installed packages, and `open_sandbox` for the sandbox backends."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from tirjudge_sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class Plugins:
    """The members of one entry-point group, from this project and from third parties."""

    group: str
    """Name of the entry-point group, such as `tirjudge.sandboxes`."""
    noun: str
    """Name of a member in error messages, such as `sandbox`."""

    def entries(self) -> list[EntryPoint]:
        """All entry points of the group, sorted by name."""
        return sorted(entry_points(group=self.group), key=lambda entry: entry.name)

    def names(self) -> tuple[str, ...]:
        """All names, sorted, each once."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries()))

    def entry(self, name: str) -> EntryPoint:
        """Return the entry point called `name`.

        Raises ValueError, in one line, if no package registers the name or several register it differently.
        """
        # Keyed by value: a package that is installed twice registers the same object twice.
        found = {entry.value: entry for entry in entry_points(group=self.group, name=name)}
        if not found:
            raise ValueError(f"no {self.noun} {name!r}; there are {', '.join(self.names())}")
        if len(found) > 1:
            raise ValueError(f"{self.noun} {name!r} could be several: {', '.join(sorted(found))}")
        (entry,) = found.values()
        return entry

    def load(self, name: str) -> Any:
        """Return the object registered as `name`. Raises ValueError as `entry` and `imported` do."""
        return self.imported(self.entry(name))

    def imported(self, entry: EntryPoint) -> Any:
        """Return the object of an entry point. Raises ValueError, in one line, if it cannot be imported."""
        try:
            return entry.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{self.noun} {entry.name!r}: cannot import {entry.value}: {error}") from error

    def open(self, name: str, /, *arguments: Any, **options: Any) -> Any:
        """Call the object registered as `name`. Raises ValueError as `load` does, and for bad options."""
        make = self.load(name)
        try:
            return make(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.noun} {name!r}: {error}") from error


SANDBOXES = Plugins("tirjudge.sandboxes", "sandbox")
"""The sandbox backends. Each entry is called with the options of `open_sandbox` and returns a `Sandbox`."""


def sandbox_names() -> tuple[str, ...]:
    """Return the names that `open_sandbox` accepts, sorted."""
    return SANDBOXES.names()


def open_sandbox(name: str = "local", /, **options: Any) -> Sandbox:
    """Return the sandbox called `name`, for `async with open_sandbox("local") as box: await box.run(...)`.

    `options` belong to the backend; `local` takes `capacity`, `preload` and `allow_weak_isolation`, among
    others (see `LocalSandbox`). Raises ValueError, in one line, for an unknown name and for a bad option.
    """
    return cast(Sandbox, SANDBOXES.open(name, **options))
