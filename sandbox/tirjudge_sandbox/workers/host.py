"""The host of workers: what its kernel offers, the placements to try, advice, and temporary folders."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tirjudge_sandbox.base import Isolation
from tirjudge_sandbox.guest import landlock
from tirjudge_sandbox.guest.namespaces import OWN_UID, PLAIN, ROOT, USERNS

PLACEMENTS = (ROOT, USERNS, OWN_UID, PLAIN)
"""Every placement on a host, the best first."""

_CAP_SYS_ADMIN = 21
_GVISOR_BUILT = "Sun Jan 10 15:06:54 PST 2016"
"""The build date that gVisor's kernel reports in every version."""

_REASONS = {
    "host_files_hidden": "files of the host can be opened",
    "network_cut": "programs can open sockets",
    "processes_contained": "programs can reach other processes, start too many or leave some behind",
    "calls_filtered": "the kernel takes no system call filter",
}
_PREFIX = "tirjudge-sandbox-"
_POLL_SECONDS = 0.02


def candidate_placements() -> tuple[str, ...]:
    """Return the members of `PLACEMENTS` that this process may try, the best first."""
    return PLACEMENTS if os.geteuid() == 0 else (USERNS, PLAIN)


def isolation(placement: str, properties: Mapping[str, bool]) -> Isolation:
    """Return the isolation that a worker measured from inside, with a note for every missing property."""
    notes = tuple(f"{name}: {_REASONS[name]}" for name, holds in properties.items() if not holds)
    return Isolation(placement=placement, notes=notes, **properties)


@dataclass(frozen=True, kw_only=True)
class Host:
    """The properties of this host that decide how programs can be isolated, as seen from this process.

    A kernel setting is None where this kernel does not have it.
    """

    kernel: str
    architecture: str
    gvisor: bool
    uid: int
    sys_admin: bool
    """True if this process has CAP_SYS_ADMIN, with which it can make namespaces without a user namespace."""
    filtered: bool
    """True if this process already runs under a system call filter, as in a container."""
    landlock: int
    """Version of Landlock's ABI, 0 where there is none."""
    max_user_namespaces: int | None
    unprivileged_userns_clone: int | None
    apparmor_restrict_unprivileged_userns: int | None

    @classmethod
    def read(cls) -> Self:
        """Examine this host now."""
        # "Field:<tab>value" per line; see proc(5).
        status = dict(
            line.split(":\t", 1) for line in _text("/proc/self/status").splitlines() if ":\t" in line
        )
        name = os.uname()
        return cls(
            kernel=name.release,
            architecture=name.machine,
            gvisor=_GVISOR_BUILT in name.version,
            uid=os.geteuid(),
            sys_admin=bool(int(status.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1),
            # 2 is SECCOMP_MODE_FILTER.
            filtered=int(status.get("Seccomp", "0")) == 2,
            landlock=landlock.abi(),
            max_user_namespaces=_number("user/max_user_namespaces"),
            unprivileged_userns_clone=_number("kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns=_number("kernel/apparmor_restrict_unprivileged_userns"),
        )

    def advice(self) -> Iterator[str]:
        """Yield changes of which each would let programs be isolated; the last one is always possible."""
        if self.gvisor:
            yield "run outside of gVisor, whose kernel lacks system calls that a worker needs"
        elif not self.landlock:
            yield "enable Landlock (a kernel from 5.13 on, `landlock` in the `lsm=` boot parameter)"
        if self.max_user_namespaces == 0:
            yield "let users make namespaces (sysctl user.max_user_namespaces=65536)"
        if self.unprivileged_userns_clone == 0:
            yield "let users make namespaces (sysctl kernel.unprivileged_userns_clone=1)"
        if self.apparmor_restrict_unprivileged_userns:
            yield "let users make namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        if self.filtered:
            yield (
                "in a container, give it a seccomp profile that allows unshare, mount and pivot_root, "
                "or Landlock's calls"
            )
        if not self.sys_admin:
            yield "run as root with CAP_SYS_ADMIN"
        yield "use the docker sandbox"
        yield "accept weaker isolation: allow_weak_isolation=True, --allow-weak-isolation"


class TemporaryFolder:
    """An empty folder, closed to other users. Closing it removes it.

    The folder is locked for as long as this process lives. Making a folder removes all folders that nobody
    has locked, which killed processes have left behind.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        _remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # Until it is locked, another process may take it for abandoned.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                self._lock = _locked(self.path, fcntl.LOCK_SH)
                if self.path.exists():
                    break
                os.close(self._lock)

    def close(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked(path: Path, kind: int) -> int:
    """Return a descriptor of a folder with a lock. Raises BlockingIOError if another process has one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # The folder is shared, so another user may have put anything under such a name.
            if path.lstat().st_uid == os.geteuid():
                descriptor = _locked(path, fcntl.LOCK_EX)
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)


def _number(setting: str) -> int | None:
    text = _text(f"/proc/sys/{setting}").strip()
    return int(text) if text else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read, even while this user has reached the kernel's limit of watches."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except OSError:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not poll.poll(0):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
