"""The first process of a worker: it prepares the isolation and starts the supervisor inside.

On a host it forks the supervisor and waits for it; in a container it becomes the supervisor.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tirjudge_sandbox.guest import landlock, memory, namespaces, privileges
from tirjudge_sandbox.guest.settings import PLAIN, USERNS, WITHOUT_NAMESPACES, Outside

_NOBODY = 65534
_FIRST_OWN_ID = 1_900_000_000
"""Workers of root each get an id of their own from here on: the kernel counts processes per id."""
_NAMED_IDS = 1024
"""Number of ids at either end of a small range that are in use already."""


CONTROL = "/control"
"""Path at which the host's socket is mounted in a container."""
# Only these devices: through /dev/ptmx a program could take terminals, which the whole kernel shares.
_READABLE_IN_CONTAINER = ("/usr", "/lib", "/lib64", "/python", "/etc/ld.so.cache", *namespaces.DEVICES)


def main() -> None:
    """Prepare a worker on a host as the command line says, and end when the supervisor ends."""
    settings = _lowered(Outside.from_json(sys.argv[1]))
    control = socket.socket(fileno=settings.inside.control)
    # Let the kernel choose workers first when memory runs out. Raising the score needs no privilege.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(memory.TEMPLATE_SCORE))
    if settings.memory_group:
        # The host finds out whether it worked.
        with contextlib.suppress(OSError):
            Path(settings.memory_group).write_text("0")
    try:
        uid = _program_uid(settings.placement)
        if settings.placement in WITHOUT_NAMESPACES:
            # A killed supervisor leaves its program behind, and the kernel kills that too once this process
            # ends.
            privileges.adopt_orphans()
        else:
            namespaces.enter(own_user=settings.placement == USERNS, inner_uid=uid)
        supervisor = os.fork()
        if not supervisor:
            _become_supervisor(settings, uid)
    except OSError as error:
        control.send(json.dumps({"failed": _describe(error)}).encode())
        os._exit(1)
    control.send(json.dumps({"supervisor": supervisor}).encode())
    # A copy of the control socket that stays open here would hide the end of the supervisor from the host.
    os.closerange(0, control.fileno() + 1)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    if settings.temporary:
        import shutil  # only here, since it takes long to load

        shutil.rmtree(settings.temporary, ignore_errors=True)
    os._exit(0)


def main_in_container() -> None:
    """Prepare a worker in a container as the command line says, and become the supervisor.

    The container runtime has already done everything that needs privileges.
    """
    settings = Outside.from_json(sys.argv[1])
    inside = settings.inside
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(CONTROL)
    except OSError as error:
        sys.exit(f"the host's control socket cannot be reached from the container: {error.strerror}")
    try:
        # Opened for the supervisor, which will not be able to open files in /proc and /sys.
        files = memory.KernelFiles.open()
        os.set_inheritable(control.fileno(), True)
        privileges.limit(unix_sockets=inside.preparation.unix_sockets)
        privileges.forbid_new()
        files = _restricted(files, _READABLE_IN_CONTAINER, inside.scratch)
        os.chdir(inside.scratch)
        given = replace(inside, control=control.fileno()).to_json()
        os.execve(settings.command[0], [*settings.command, given, files.to_json()], settings.environment)
    except OSError as error:
        control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
        sys.exit(1)


def _describe(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _lowered(settings: Outside) -> Outside:
    """Move the control socket to the lowest free descriptor, however many descriptors the host holds.

    A program closes all descriptors below its limit. A socket above the limit would stay open, and the
    program could report its own end.
    """
    given = settings.inside.control
    control = os.dup(given)
    os.close(given)
    return replace(settings, inside=replace(settings.inside, control=control))


def _program_uid(placement: str) -> int:
    if placement == USERNS:
        return _NOBODY
    return os.geteuid() if placement == PLAIN else _own_id()


def _own_id() -> int:
    """Return an unused id of this user namespace. Raises OSError."""
    end = min(_end(Path("/proc/self", kind)) for kind in ("uid_map", "gid_map"))
    own = _FIRST_OWN_ID + os.getpid()
    if own < end:
        return own
    if end < 4 * _NAMED_IDS:
        raise OSError(errno.ERANGE, "this user namespace has no user id to spare")
    return end - _NAMED_IDS - os.getpid() % (end - 2 * _NAMED_IDS)


def _end(id_map: Path) -> int:
    first, _, count = id_map.read_text().splitlines()[-1].split()
    return int(first) + int(count)


def _become_supervisor(settings: Outside, uid: int) -> NoReturn:
    inside = settings.inside
    # Opened for the supervisor, which will have no /proc.
    files = memory.KernelFiles.open([settings.memory_kills] if settings.memory_kills else [])
    if settings.placement in WITHOUT_NAMESPACES:
        readable = [*namespaces.SYSTEM, *namespaces.DEVICES, *(source for source, _ in settings.binds)]
        os.mkdir(inside.scratch, 0o700)
        if settings.placement != PLAIN:
            os.chown(inside.scratch, uid, uid)
    else:
        readable = ["/"]
        namespaces.pivot(
            settings.binds, inside.scratch, hidden=settings.hidden, folder=settings.folder, owner=uid
        )
    os.chdir(inside.scratch)
    privileges.limit(unix_sockets=inside.preparation.unix_sockets)
    privileges.drop(None if settings.placement == PLAIN else uid)
    files = _restricted(files, readable, inside.scratch)
    os.set_inheritable(inside.control, True)
    # A new program keeps nothing of the memory of this one, which holds paths of the host.
    arguments = [*settings.command, inside.to_json(), files.to_json()]
    os.execve(arguments[0], arguments, settings.environment)


def _restricted(files: memory.KernelFiles, readable: Sequence[str], scratch: str) -> memory.KernelFiles:
    """Add the rules that the supervisor enters before anything else. Raises OSError."""
    if not landlock.abi():
        return files
    write = [scratch, *namespaces.WRITABLE_DEVICES]
    return replace(files, ruleset=landlock.ruleset(read=readable, write=write))
