"""The first process of a worker: it prepares the isolation and starts the supervisor inside.

On a host it forks the supervisor and waits for it; in a container it becomes the supervisor. It loads few
modules, since loading them is most of its time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from _json import encode_basestring_ascii  # `json` takes long to load
from collections.abc import Sequence

from tirjudge_sandbox.guest import landlock, memory, namespaces, privileges
from tirjudge_sandbox.guest.namespaces import PLAIN, USERNS, WITHOUT_NAMESPACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from tirjudge_sandbox.guest.settings import Outside

_NOBODY = 65534
_FIRST_OWN_ID = 1_900_000_000
"""Workers of root each get an id of their own from here on: the kernel counts processes per id."""
_NAMED_IDS = 1024
"""Number of ids at either end of a small range that are in use already."""


CONTROL = "/control"
"""Path at which the host's socket is mounted in a container."""
# Only these devices: through /dev/ptmx a program could take terminals, which the whole kernel shares.
_READABLE_IN_CONTAINER = ("/usr", "/lib", "/lib64", "/python", "/etc/ld.so.cache", *namespaces.DEVICES)


def main(settings: Outside) -> None:
    """Prepare a worker on a host, and end when the supervisor ends."""
    # The lowest free descriptor, however many descriptors the host holds. A program closes all descriptors
    # below its limit. A socket above the limit would stay open, and the program could report its own end.
    control = os.dup(settings.control)
    os.close(settings.control)
    # Let the kernel choose workers first when memory runs out. Raising the score needs no privilege.
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", str(memory.TEMPLATE_SCORE))
    if settings.memory_group:
        # The host finds out whether it worked.
        with contextlib.suppress(OSError):
            _write(settings.memory_group, "0")
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
            _become_supervisor(settings, control, uid)
    except OSError as error:
        _send_failure(control, f"{error.filename}: {_reason(error)}" if error.filename else _reason(error))
        os._exit(1)
    os.write(control, b'{"supervisor": %d}' % supervisor)
    # A copy of the control socket that stays open here would hide the end of the supervisor from the host.
    os.closerange(0, control + 1)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    if settings.temporary:
        import shutil  # only here, since it takes long to load

        shutil.rmtree(settings.temporary, ignore_errors=True)
    os._exit(0)


def main_in_container(settings: Outside) -> None:
    """Prepare a worker in a container, and become the supervisor.

    The container runtime has already done everything that needs privileges.
    """
    import socket  # only here, since it takes long to load

    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(CONTROL)
    except OSError as error:
        sys.exit(f"the host's control socket cannot be reached from the container: {error.strerror}")
    try:
        # Opened for the supervisor, which will not be able to open files in /proc and /sys.
        files = memory.KernelFiles.open()
        privileges.limit(unix_sockets=settings.unix_sockets)
        privileges.forbid_new()
        _restrict(files, _READABLE_IN_CONTAINER, settings.scratch)
        os.chdir(settings.scratch)
        _execute_supervisor(settings, control.fileno(), files)
    except OSError as error:
        _send_failure(control.fileno(), _reason(error))
        sys.exit(1)


def _send_failure(control: int, reason: str) -> None:
    os.write(control, f'{{"failed": {encode_basestring_ascii(reason)}}}'.encode())


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _program_uid(placement: str) -> int:
    if placement == USERNS:
        return _NOBODY
    return os.geteuid() if placement == PLAIN else _own_id()


def _own_id() -> int:
    """Return an unused id of this user namespace. Raises OSError."""
    end = min(_end(f"/proc/self/{kind}") for kind in ("uid_map", "gid_map"))
    own = _FIRST_OWN_ID + os.getpid()
    if own < end:
        return own
    if end < 4 * _NAMED_IDS:
        raise OSError(errno.ERANGE, "this user namespace has no user id to spare")
    return end - _NAMED_IDS - os.getpid() % (end - 2 * _NAMED_IDS)


def _end(id_map: str) -> int:
    with open(id_map) as file:
        first, _, count = file.readlines()[-1].split()
    return int(first) + int(count)


def _become_supervisor(settings: Outside, control: int, uid: int) -> NoReturn:
    # Opened for the supervisor, which will have no /proc.
    files = memory.KernelFiles.open([settings.memory_kills] if settings.memory_kills else [])
    if settings.placement in WITHOUT_NAMESPACES:
        readable = [*namespaces.SYSTEM, *namespaces.DEVICES, *(source for source, _ in settings.binds)]
        os.mkdir(settings.scratch, 0o700)
        if settings.placement != PLAIN:
            os.chown(settings.scratch, uid, uid)
    else:
        readable = ["/"]
        namespaces.pivot(
            settings.binds, settings.scratch, hidden=settings.hidden, folder=settings.folder, owner=uid
        )
    os.chdir(settings.scratch)
    privileges.limit(unix_sockets=settings.unix_sockets)
    privileges.drop(None if settings.placement == PLAIN else uid)
    _restrict(files, readable, settings.scratch)
    _execute_supervisor(settings, control, files)


def _restrict(files: memory.KernelFiles, readable: Sequence[str], scratch: str) -> None:
    """Add the rules that the supervisor enters before anything else. Raises OSError."""
    if landlock.abi():
        write = [scratch, *namespaces.WRITABLE_DEVICES]
        files.ruleset = landlock.ruleset(read=readable, write=write)


def _execute_supervisor(settings: Outside, control: int, files: memory.KernelFiles) -> NoReturn:
    os.set_inheritable(control, True)
    # A new program keeps nothing of the memory of this one, which holds paths of the host.
    arguments = [*settings.command, str(control), files.inherited()]
    os.execve(arguments[0], arguments, settings.environment)
