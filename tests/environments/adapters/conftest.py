"""Skip tests of frameworks that are not installed; `.ci/frameworks` names the files, so none is missed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tirjudge_environments.adapters.dialogues import SandboxThread

_PACKAGES = ("openenv", "skyrl_gym", "trl", "verifiers", "verl")

collect_ignore_glob = [
    f"test_{package.removesuffix('_gym')}*.py" for package in _PACKAGES if find_spec(package) is None
]


@pytest.fixture(scope="module", autouse=True)
def no_sandbox_stays_open() -> Iterator[None]:
    """Close shared sandboxes, since other tests look at all child processes."""
    yield
    SandboxThread.close_all()
