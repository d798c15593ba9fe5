"""Run a command to which the kernel refuses some calls, as container runtimes and old kernels do.

`python refusing.py unshare,landlock COMMAND...`
"""

from __future__ import annotations

import os
import struct
import sys

from tirjudge_sandbox.guest import privileges, seccomp, syscalls

_LOAD_NUMBER, _ALLOW = (0x20, 0, 0, 0), (0x06, 0, 0, 0x7FFF0000)
_REFUSE = (0x06, 0, 0, 0x50001)
"""A seccomp return that refuses a call with EPERM."""


def main() -> None:
    numbers = {
        "unshare": {"x86_64": 272, "aarch64": 97}[os.uname().machine],
        "landlock": syscalls.setup("landlock_create_ruleset"),
        "mount_setattr": syscalls.setup("mount_setattr"),
    }
    code = [_LOAD_NUMBER]
    for name in sys.argv[1].split(","):
        code += [(0x15, 0, 1, numbers[name]), _REFUSE]
    privileges.forbid_new()
    seccomp.load(b"".join(struct.pack("HBBI", *instruction) for instruction in (*code, _ALLOW)))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
