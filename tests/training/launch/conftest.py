"""Skip the tests of verl where it is not installed; `.ci/frameworks` names the files, so none is missed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("verl") else ["test_verl*.py"]
