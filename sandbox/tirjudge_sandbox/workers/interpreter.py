"""The command lines that start a worker's processes: interpreter, flags, environment and mounted folders."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tirjudge_sandbox import guest
from tirjudge_sandbox.guest import namespaces
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.settings import Inside, Outside, Preparation

_INSIDE = "/python"
_INSIDE_EXECUTABLE = f"{_INSIDE}/bin/python3"
_INSIDE_PACKAGE = f"{_INSIDE}/sandbox"
_INSIDE_SCRATCH = "/tmp"

# Not -I, which would ignore PYTHONHASHSEED. The environment is safe anyway: it is built here from scratch.
_FLAGS = ("-P", "-s", "-S", "-B")

_NAMING_FOLDERS = (
    *("*.pth", "*.egg-link", "*editable*", "__pycache__/*editable*"),
    *("*.dist-info/direct_url.json", "*.egg-info/direct_url.json"),
)
"""Files with which installers say where a package is that is not in the folder, such as an editable one."""

_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    # Whatever ends a program, what it has printed by then is in the pipe and not in a buffer that is lost.
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",
    # A thread pool would not survive the fork that starts a program.
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # An arena for each thread would reserve 64 MiB of addresses, which count as memory.
    "MALLOC_ARENA_MAX": "1",
    # There is no list of users in which `getpass.getuser` could look.
    "LOGNAME": "sandbox",
    "USER": "sandbox",
}


def launch_command(settings: Outside) -> list[str]:
    """Return the command line of a worker's first process on the host."""
    code = _boot(str(Path(guest.__path__[0]).parent), "launcher", "main", settings.to_code())
    return [sys.executable, *_FLAGS, "-c", code]


def launch_environment() -> dict[str, str]:
    """Return the part of this process's environment in which the first process finds its libraries."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def pivoted_settings(
    placement: str, control: int, preparation: Preparation, working_folder: WorkingFolder
) -> Outside:
    """Return settings for a worker with its own root folder, where the interpreter has fixed paths."""
    folders = _site_folders()
    sites = [f"{_INSIDE}/site-{index}" for index in range(len(folders))]
    inside = Inside(scratch=_INSIDE_SCRATCH, own_root=True, sites=sites, preparation=preparation)
    return Outside(
        placement=placement,
        folder=working_folder.mount_options(),
        binds=[*_interpreter_binds(), *zip(folders, sites, strict=True)],
        hidden=[path for folder, site in zip(folders, sites, strict=True) for path in _hidden(folder, site)],
        command=_supervisor_command(_INSIDE_EXECUTABLE, _INSIDE_PACKAGE, inside),
        environment={
            **_ENVIRONMENT,
            "HOME": _INSIDE_SCRATCH,
            "LD_LIBRARY_PATH": f"{_INSIDE}/lib:{_INSIDE}/lib64",
            "PATH": f"{_INSIDE}/bin",
        },
        control=control,
        scratch=_INSIDE_SCRATCH,
        unix_sockets=preparation.unix_sockets,
    )


def contained_command(preparation: Preparation, working_folder: WorkingFolder) -> list[str]:
    """Return the command line of a container, whose image has the interpreter at the same fixed paths."""
    sites = [f"{_INSIDE}/site-0"]
    inside = Inside(scratch=_INSIDE_SCRATCH, own_root=True, sites=sites, preparation=preparation)
    settings = Outside(
        placement="container",
        folder=working_folder.mount_options(),
        binds=[],
        command=_supervisor_command(_INSIDE_EXECUTABLE, _INSIDE_PACKAGE, inside),
        environment={**_ENVIRONMENT, "HOME": _INSIDE_SCRATCH, "PATH": f"{_INSIDE}/bin"},
        control=-1,  # the container connects its control socket by itself
        scratch=_INSIDE_SCRATCH,
        unix_sockets=preparation.unix_sockets,
    )
    code = _boot(_INSIDE_PACKAGE, "launcher", "main_in_container", settings.to_code())
    return [_INSIDE_EXECUTABLE, *_FLAGS, "-c", code]


def unpivoted_settings(
    placement: str, control: int, preparation: Preparation, working_folder: WorkingFolder, folder: str
) -> Outside:
    """Return settings for a worker that keeps the host's root folder.

    `folder`: an empty one, in which it makes the only folder that it may write to.
    """
    scratch = f"{folder}/scratch"
    sites = _site_folders()
    package = str(Path(guest.__path__[0]).parent)
    binds = [*_interpreter_binds(), *((folder, folder) for folder in (*sites, package))]
    inside = Inside(scratch=scratch, own_root=False, sites=sites, preparation=preparation)
    return Outside(
        placement=placement,
        folder=working_folder.mount_options(),
        binds=binds,
        command=_supervisor_command(binds[0][0], package, inside),
        environment={**_ENVIRONMENT, **launch_environment(), "HOME": scratch},
        temporary=folder,
        control=control,
        scratch=scratch,
        unix_sockets=preparation.unix_sockets,
    )


def _supervisor_command(executable: str, package: str, inside: Inside) -> list[str]:
    return [executable, *_FLAGS, "-c", _boot(package, "supervisor", "main"), inside.to_json()]


def _interpreter_binds() -> list[tuple[str, str]]:
    # The interpreter behind a virtual environment, which may hold a link to it or a copy.
    executable = getattr(sys, "_base_executable", sys.executable)
    # The parent of the standard library, which also holds the interpreter's own shared libraries.
    # In a virtual environment `platbase` is that environment, which has no standard library.
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
    libraries = {Path(sysconfig.get_path(name, vars=base)).parent for name in ("stdlib", "platstdlib")}
    return [
        (os.path.realpath(executable), _INSIDE_EXECUTABLE),
        (os.path.realpath(guest.__path__[0]), f"{_INSIDE_PACKAGE}/guest"),
        *((os.path.realpath(path), f"{_INSIDE}/{path.name}") for path in sorted(libraries)),
    ]


def _site_folders() -> list[str]:
    folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [os.path.realpath(path) for path in folders if os.path.isdir(path)]


def _hidden(folder: str, site: str) -> Iterator[str]:
    """Yield the files of a folder of packages that name other folders of this host, as paths inside.

    `site`: the folder's path inside. A package of the system can be seen at its own path too.
    """
    for pattern in _NAMING_FOLDERS:
        for path in Path(folder).glob(pattern):
            if path.is_file():
                yield f"{site}/{path.relative_to(folder)}"
                if folder.startswith(namespaces.SYSTEM):
                    yield str(path)


def _boot(folder: str, module: str, function: str, argument: str = "") -> str:
    """Return code that calls a function of one guest module in `folder`.

    A stand-in for the package keeps its real `__init__`, which belongs to the host, from being imported.
    """
    return (
        "import sys, types\n"
        "package = types.ModuleType('tirjudge_sandbox')\n"
        f"package.__path__ = [{folder!r}]\n"
        "sys.modules['tirjudge_sandbox'] = package\n"
        f"from tirjudge_sandbox.guest.{module} import {function}\n"
        f"{function}({argument})\n"
    )
