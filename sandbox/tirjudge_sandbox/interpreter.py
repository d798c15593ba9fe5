"""Which interpreter workers run, where its files appear inside, and how it is started."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tirjudge_sandbox import guest

_INSIDE = "/python"
_INSIDE_EXECUTABLE = f"{_INSIDE}/bin/python3"
_INSIDE_PACKAGE = f"{_INSIDE}/sandbox"

# Not -I, which would ignore the fixed hash seed: the environment is clean instead, and it is ours from end to end.
_FLAGS = ("-P", "-s", "-S", "-B")

_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LD_LIBRARY_PATH": f"{_INSIDE}/lib:{_INSIDE}/lib64",
    "PATH": f"{_INSIDE}/bin",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    # A pool of threads would not survive the fork.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def launch_command(placement: str, control: int, preload: Sequence[str], disk_bytes: int) -> list[str]:
    """Command line of a worker's first process, which finds its control socket at descriptor `control`."""
    sites = _site_folders()
    targets = [f"{_INSIDE}/site-{index}" for index in range(len(sites))]
    settings = {
        "placement": placement,
        "control": control,
        "disk_bytes": disk_bytes,
        "preload": list(preload),
        "sites": targets,
        "binds": [*_interpreter_binds(), *zip(sites, targets, strict=True)],
        "command": [_INSIDE_EXECUTABLE, *_FLAGS, "-c", _boot(_INSIDE_PACKAGE, "template")],
        "environment": _ENVIRONMENT,
    }
    code = _boot(str(Path(guest.__path__[0]).parent), "launcher")
    return [sys.executable, *_FLAGS, "-c", code, json.dumps(settings)]


def launch_environment() -> dict[str, str]:
    """All that a worker's first process sees of this process's environment: how to find its own libraries."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _interpreter_binds() -> list[tuple[str, str]]:
    executable = getattr(sys, "_base_executable", sys.executable)
    # The folder around the standard library: shared libraries of the interpreter's own lie there too.
    libraries = {Path(sysconfig.get_path(name)).parent for name in ("stdlib", "platstdlib")}
    folders = {os.path.realpath(path): f"{_INSIDE}/{path.name}" for path in _base_libraries(libraries)}
    return [
        (os.path.realpath(executable), _INSIDE_EXECUTABLE),
        (os.path.realpath(guest.__path__[0]), f"{_INSIDE_PACKAGE}/guest"),
        *folders.items(),
    ]


def _base_libraries(libraries: set[Path]) -> set[Path]:
    """A virtual environment's `platstdlib` points into itself; its base's is meant."""
    return {Path(sys.base_prefix) / path.relative_to(sys.prefix) if path.is_relative_to(sys.prefix) else path for path in libraries}


def _site_folders() -> list[str]:
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [os.path.realpath(path) for path in folders if os.path.isdir(path)]


def _boot(folder: str, module: str) -> str:
    """Code that loads one guest module from `folder` without running the host side's `__init__`."""
    return (
        "import sys, types\n"
        "package = types.ModuleType('tirjudge_sandbox')\n"
        f"package.__path__ = [{folder!r}]\n"
        "sys.modules['tirjudge_sandbox'] = package\n"
        f"from tirjudge_sandbox.guest.{module} import main\n"
        "main()\n"
    )
