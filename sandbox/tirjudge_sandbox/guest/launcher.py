"""The first process of a worker: it builds the place, forks PID 1 into it, and waits."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import NoReturn

from tirjudge_sandbox.guest import landlock, namespaces, privileges, scratch
from tirjudge_sandbox.guest.namespaces import Bind

_NOBODY = 65534
_FIRST_OWN_UID = 1_900_000_000
"""Root's workers each get a uid of their own from here on, so that none counts against another's limits."""

PYTHON = "/python"
CODE = "/python-guest"


def main() -> None:
    """Read the settings from the command line, prepare, and end when the template ends."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=settings["control"])
    as_root = settings["placement"] == "root"
    uid = _FIRST_OWN_UID + os.getpid() if as_root else _NOBODY
    try:
        namespaces.enter(own_user=not as_root, inner_uid=uid)
        child = os.fork()
        if not child:
            _become_template(settings, control, uid)
    except OSError as error:
        _give_up(control, error)
    control.send(json.dumps({"template": child}).encode())
    os.closerange(0, 256)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _become_template(settings: dict[str, object], control: socket.socket, uid: int) -> NoReturn:
    try:
        # Read by the template, after its preparation; inside there is no /proc.
        statm = os.open("/proc/self/statm", os.O_RDONLY)
        binds = [Bind(*pair) for pair in settings["binds"]]  # type: ignore[attr-defined]
        namespaces.pivot(
            binds, scratch=scratch.PATH, scratch_bytes=int(str(settings["disk_bytes"])), owner=uid
        )
        os.chdir(scratch.PATH)
        privileges.limit()
        privileges.drop(uid)
        if landlock.abi():
            landlock.restrict(read=["/"], write=[scratch.PATH, "/dev/null", "/dev/zero", "/dev/full"])
        for descriptor in (control.fileno(), statm):
            os.set_inheritable(descriptor, True)
        inside = {**settings, "statm": statm, "landlock": landlock.abi()}
        arguments = [*settings["command"], json.dumps(inside)]  # type: ignore[misc]
        os.execve(arguments[0], arguments, settings["environment"])  # type: ignore[arg-type]
    except OSError as error:
        _give_up(control, error)


def _give_up(control: socket.socket, error: OSError) -> NoReturn:
    control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
    os._exit(1)
