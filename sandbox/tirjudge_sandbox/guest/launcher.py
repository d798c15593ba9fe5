"""The first process of a worker: it builds the place, forks the template into it, and waits."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from typing import NoReturn

from tirjudge_sandbox.guest import landlock, namespaces, privileges
from tirjudge_sandbox.guest.settings import Outside

_NOBODY = 65534
_FIRST_OWN_UID = 1_900_000_000
"""Root's workers each get a uid of their own from here on, so that none counts against another's limits."""

_WRITABLE_DEVICES = ["/dev/null", "/dev/zero", "/dev/full"]


def main() -> None:
    """Prepare as the command line says, and end when the template ends."""
    settings = _lowered(Outside.from_json(sys.argv[1]))
    control = socket.socket(fileno=settings.inside.control)
    uid = _program_uid(settings.placement)
    try:
        if settings.placement != "plain":
            namespaces.enter(own_user=settings.placement == "userns", inner_uid=uid)
        template = os.fork()
        if not template:
            _become_template(settings, uid)
    except OSError as error:
        control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
        os._exit(1)
    control.send(json.dumps({"template": template}).encode())
    os.closerange(0, control.fileno() + 1)
    os.waitpid(template, 0)
    os._exit(0)


def _lowered(settings: Outside) -> Outside:
    """The control socket at the lowest free number, however many descriptors the host holds.

    Above the limit on descriptors a program would not find its number to close it, and could report for us.
    """
    given = settings.inside.control
    control = os.dup(given)
    os.close(given)
    return replace(settings, inside=replace(settings.inside, control=control))


def _program_uid(placement: str) -> int:
    if placement == "userns":
        return _NOBODY
    return _FIRST_OWN_UID + os.getpid() if os.geteuid() == 0 else os.geteuid()


def _become_template(settings: Outside, uid: int) -> NoReturn:
    inside = settings.inside
    # For the template, once it is warm: it will have no /proc.
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    if settings.placement == "plain":
        readable = [*namespaces.SYSTEM_LIBRARIES, "/dev", *(source for source, _ in settings.binds)]
        os.chown(inside.scratch, uid, uid)
    else:
        readable = ["/"]
        namespaces.pivot(settings.binds, inside.scratch, scratch_bytes=settings.disk_bytes, owner=uid)
    os.chdir(inside.scratch)
    privileges.limit()
    privileges.drop(uid)
    if landlock.abi():
        landlock.restrict(read=readable, write=[inside.scratch, *_WRITABLE_DEVICES])
    for descriptor in (inside.control, statm):
        os.set_inheritable(descriptor, True)
    arguments = [*settings.command, inside.to_json(), str(statm)]
    os.execve(arguments[0], arguments, settings.environment)
