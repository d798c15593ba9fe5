"""The first process of a worker: it builds the place, forks the template into it, and waits."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from tirjudge_sandbox.guest import landlock, namespaces, privileges
from tirjudge_sandbox.guest.settings import PLAIN, USERNS, WITHOUT_NAMESPACES, Outside

_NOBODY = 65534
_FIRST_OWN_ID = 1_900_000_000
"""Root's workers each get an id of their own from here on, so that none counts against another's limits."""
_NAMED_IDS = 1024
"""How many ids at either end of a small range belong to someone."""


def main() -> None:
    """Prepare as the command line says, and end when the template ends."""
    settings = _lowered(Outside.from_json(sys.argv[1]))
    control = socket.socket(fileno=settings.inside.control)
    # The kernel's choice when memory runs out. Raising this needs no privilege.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        uid = _program_uid(settings.placement)
        if settings.placement in WITHOUT_NAMESPACES:
            # A template that is killed leaves its program behind, which the kernel then kills too.
            privileges.adopt_orphans()
        else:
            namespaces.enter(own_user=settings.placement == USERNS, inner_uid=uid)
        template = os.fork()
        if not template:
            _become_template(settings, uid)
    except OSError as error:
        control.send(json.dumps({"failed": _words(error)}).encode())
        os._exit(1)
    control.send(json.dumps({"template": template}).encode())
    os.closerange(0, control.fileno() + 1)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def _words(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _lowered(settings: Outside) -> Outside:
    """The control socket at the lowest free number, however many descriptors the host holds.

    Above the limit on descriptors a program would not find its number to close it, and could report for us.
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
    """An id that nothing else has, among those that this user namespace knows. Raises OSError."""
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


def _become_template(settings: Outside, uid: int) -> NoReturn:
    inside = settings.inside
    # For the template, once it is warm: it will have no /proc.
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    if settings.placement in WITHOUT_NAMESPACES:
        readable = [*namespaces.SYSTEM, *namespaces.DEVICES, *(source for source, _ in settings.binds)]
        if settings.placement != PLAIN:
            os.chown(inside.scratch, uid, uid)
    else:
        readable = ["/"]
        namespaces.pivot(settings.binds, inside.scratch, scratch_bytes=settings.disk_bytes, owner=uid)
    os.chdir(inside.scratch)
    privileges.limit()
    privileges.drop(None if settings.placement == PLAIN else uid)
    if landlock.abi():
        landlock.restrict(read=readable, write=[inside.scratch, *namespaces.WRITABLE_DEVICES])
    for descriptor in (inside.control, statm):
        os.set_inheritable(descriptor, True)
    arguments = [*settings.command, inside.to_json(), str(statm)]
    os.execve(arguments[0], arguments, settings.environment)
