"""The first process of a container that is a worker: it connects to the host and becomes the template."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace

from tirjudge_sandbox.guest import landlock, memory_kills, namespaces, privileges
from tirjudge_sandbox.guest.settings import Outside

CONTROL = "/control"
"""Where the host's socket is mounted."""

# Of /dev no more than these: through /dev/ptmx a program could take terminals, which the whole kernel shares.
_READABLE = ("/usr", "/lib", "/lib64", "/python", "/etc/ld.so.cache", *namespaces.DEVICES)


def main() -> None:
    """Prepare as the command line says; all that takes privileges the container runtime has already done."""
    settings = Outside.from_json(sys.argv[1])
    inside = settings.inside
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(CONTROL)
    except OSError as error:
        sys.exit(f"the host's control socket cannot be reached from the container: {error.strerror}")
    try:
        # For the template, once it is warm: /proc and /sys will be shut.
        counts = [os.open("/proc/self/statm", os.O_RDONLY), memory_kills.open_count()]
        opened = [descriptor for descriptor in counts if descriptor is not None]
        for descriptor in (control.fileno(), *opened):
            os.set_inheritable(descriptor, True)
        privileges.limit()
        privileges.forbid_new()
        if landlock.abi():
            landlock.restrict(read=_READABLE, write=[inside.scratch, *namespaces.WRITABLE_DEVICES])
        os.chdir(inside.scratch)
        given = replace(inside, control=control.fileno()).to_json()
        os.execve(settings.command[0], [*settings.command, given, *map(str, opened)], settings.environment)
    except OSError as error:
        control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
        sys.exit(1)
