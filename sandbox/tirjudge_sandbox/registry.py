"""Sandboxes by name: ours and those that other packages register."""

from __future__ import annotations

from typing import Any, cast

from tirjudge_sandbox.base import Sandbox
from tirjudge_sandbox.plugins import Plugins

SANDBOXES = Plugins("tirjudge.sandboxes", "sandbox")
"""Each entry takes the options of `open_sandbox` and gives a `Sandbox`."""


def sandbox_names() -> tuple[str, ...]:
    """The names that `open_sandbox` knows, sorted."""
    return SANDBOXES.names()


def open_sandbox(name: str = "local", /, **options: Any) -> Sandbox:
    """A sandbox by name, to be used as `async with open_sandbox("local") as box: await box.run(...)`.

    Options are the backend's own; `local` takes `capacity`, `preload` and `allow_weak_isolation` (see
    `LocalSandbox`). Raises ValueError, in one line, for a name that nothing is registered under and for a
    bad option.
    """
    return cast(Sandbox, SANDBOXES.open(name, **options))
