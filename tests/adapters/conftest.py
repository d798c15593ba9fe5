"""Each framework's tests run where it is installed; `.ci/frameworks` names the files, so none is left out."""

from __future__ import annotations

from importlib.util import find_spec

_PACKAGES = ("openenv", "skyrl_gym", "trl", "verifiers", "verl")

collect_ignore_glob = [
    f"test_{package.removesuffix('_gym')}*.py" for package in _PACKAGES if find_spec(package) is None
]
