"""What this machine's kernel offers a sandbox, and what would make it offer more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tirjudge_sandbox.guest import landlock

_CAP_SYS_ADMIN = 21
_GVISOR_BUILT = "Sun Jan 10 15:06:54 PST 2016"
"""When gVisor's kernel says it was built, whatever its version."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Seen from this process. None for a setting that this kernel does not have."""

    kernel: str
    architecture: str
    gvisor: bool
    uid: int
    sys_admin: bool
    """Whether this process has CAP_SYS_ADMIN, which making namespaces takes without a user namespace."""
    filtered: bool
    """Whether it runs under a system call filter already, as in a container."""
    landlock: int
    """Version of Landlock, 0 where there is none."""
    max_user_namespaces: int | None
    unprivileged_userns_clone: int | None
    apparmor_restrict_unprivileged_userns: int | None

    @classmethod
    def read(cls) -> Self:
        """This machine, now."""
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
            filtered=int(status.get("Seccomp", "0")) == 2,
            landlock=landlock.abi(),
            max_user_namespaces=_number("user/max_user_namespaces"),
            unprivileged_userns_clone=_number("kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns=_number("kernel/apparmor_restrict_unprivileged_userns"),
        )

    def advice(self) -> Iterator[str]:
        """What would let programs be isolated, each by itself; the last one always is possible."""
        if self.gvisor:
            yield "run outside of gVisor, whose kernel lacks calls that a worker needs"
        elif not self.landlock:
            yield "switch Landlock on (a kernel from 5.13 on, `landlock` among `lsm=` at its start)"
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
        yield "accept less: allow_weak_isolation=True, --allow-weak-isolation"


def _number(setting: str) -> int | None:
    text = _text(f"/proc/sys/{setting}").strip()
    return int(text) if text else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
