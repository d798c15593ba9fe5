"""Families of named members, our own and those of installed packages, and the family of sandbox backends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, cast

from tirjudge_sandbox.base import Sandbox


def plugged_in(group: str) -> EntryPoints:
    """Return the entry points of a group in all installed packages.

    The packages are read once for each `sys.path`: with two hundred of them, reading takes 20 ms.
    """
    found: EntryPoints = _entry_points(tuple(sys.path)).select(group=group)
    return found


@lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> Any:
    # `SelectableGroups` before Python 3.12, and `EntryPoints` since.
    return entry_points()


@dataclass(frozen=True, slots=True)
class Plugins:
    """The members of a family, which are imported when they are first used.

    Our own members are in the table `own`. Other packages add members by entry points.
    """

    group: str
    """Name of the entry-point group of other packages, such as `tirjudge.sandboxes`."""
    noun: str
    """Name of a member in error messages, such as `sandbox`."""
    home: str = ""
    """The package in which the modules of `own` are."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Our own members by name: `module:OBJECT`."""

    def entries(self) -> list[EntryPoint]:
        """All members, sorted by name."""
        own = [EntryPoint(name, f"{self.home}.{value}", self.group) for name, value in self.own.items()]
        return sorted([*own, *plugged_in(self.group)], key=lambda entry: entry.name)

    def names(self) -> tuple[str, ...]:
        """All names, sorted, each once."""
        return tuple(dict.fromkeys(entry.name for entry in self.entries()))

    def entry(self, name: str) -> EntryPoint:
        """Return the member called `name`, not yet imported.

        Raises ValueError, in one line, if there is no such member or if several packages have one.
        """
        # Keyed by value: a package that is installed twice registers the same object twice.
        found = {entry.value: entry for entry in self.entries() if entry.name == name}
        if not found:
            raise ValueError(f"no {self.noun} {name!r}; there are {', '.join(self.names())}")
        if len(found) > 1:
            raise ValueError(f"{self.noun} {name!r} could be several: {', '.join(sorted(found))}")
        (entry,) = found.values()
        return entry

    def known(self, name: str) -> str:
        """Return a name unchanged; raises as `entry` does, without importing the member."""
        self.entry(name)
        return name

    def load(self, name: str) -> Any:
        """Return the object registered as `name`. Raises ValueError as `entry` and `imported` do."""
        return self.imported(self.entry(name))

    def imported(self, entry: EntryPoint) -> Any:
        """Return the object of a member. Raises ValueError, in one line, if it cannot be imported."""
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


SANDBOXES = Plugins(
    "tirjudge.sandboxes",
    "sandbox",
    "tirjudge_sandbox",
    {
        "docker": "containers.docker:DockerSandbox",
        "jupyter": "notebook.jupyter:JupyterSandbox",
        "local": "local:LocalSandbox",
        "remote": "remote:RemoteSandbox",
    },
)
"""The sandbox backends. Each member is called with the options of `open_sandbox` and returns a `Sandbox`."""


def sandbox_names() -> tuple[str, ...]:
    """Return the names that `open_sandbox` accepts, sorted."""
    return SANDBOXES.names()


def open_sandbox(name: str = "local", /, **options: Any) -> Sandbox:
    """Return the sandbox called `name`: `local`, `docker`, `jupyter`, `remote`, or another package's.

    ```python
    async with open_sandbox("local", capacity=2) as box:
        execution = await box.run(Program("print(1 + 1)"), Limits(wall_seconds=5))
        execution.status, execution.stdout  # Status.OK, "2\\n"
    ```

    `options` belong to the backend. Those of `local` are `capacity` (the most programs at once; by default
    one for each usable CPU), `preload` (modules that every program finds loaded: numpy and sympy),
    `import_policy` and `allow_weak_isolation`, among others (see `tirjudge_sandbox.local.LocalSandbox`).
    Raises ValueError, in one line, for an unknown name and for a bad option. Opening raises
    SandboxUnavailable if the machine cannot isolate programs. `open_sandbox_sync` is the blocking form.
    """
    return cast(Sandbox, SANDBOXES.open(name, **options))
