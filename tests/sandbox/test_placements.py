"""What a machine allows decides where programs run; what it does not allow is named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT, NOBODY = 0, 65534

# The first lines refuse calls to all that follows, as container runtimes and old kernels do.
HOST = """
import asyncio, ctypes, os, struct, sys
from tirjudge_sandbox import Limits, Program, SandboxUnavailable
from tirjudge_sandbox.guest import privileges, syscalls, libc
from tirjudge_sandbox.local import LocalSandbox

UNSHARE = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
LANDLOCK = syscalls.setup("landlock_create_ruleset")
code = [(0x20, 0, 0, 0)]
for number in REFUSED:
    code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50001)]
code.append((0x06, 0, 0, 0x7FFF0000))
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in code))
privileges.forbid_new()
loaded = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(packed))
libc.syscall("seccomp", syscalls.setup("seccomp"), 1, 0, loaded)

async def main():
    try:
        async with LocalSandbox(capacity=1, preload=(), **OPTIONS) as box:
            isolation = (await box.run(Program(source=""))).isolation
            print(isolation.placement, *isolation.missing)
            print(*isolation.notes, sep="; ")
            for source in PROGRAMS:
                ran = await box.run(
                    Program(source=source, files={"given": b"given"}),
                    Limits(wall_seconds=2, cpu_seconds=1, processes=3),
                )
                said = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
                print(ran.status, ran.signal or "", said and said[0].split(":")[0])
    except SandboxUnavailable as error:
        print(error)

asyncio.run(main())
"""


def python_as(user: int, *arguments: str) -> list[str]:
    """Lines of a Python that runs as `user`, or as ourselves if we cannot choose."""
    lowered = [sys.executable, str(HERE / "unprivileged.py"), str(user)] if os.geteuid() == 0 else []
    command = [*lowered, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def opened(user: int, *, refused: str = "", programs: tuple[str, ...] = (), **options: object) -> list[str]:
    """What a host prints on which the calls `refused` fail."""
    given = f"OPTIONS, PROGRAMS = {options!r}, {programs!r}\n"
    return python_as(user, "-c", given + HOST.replace("REFUSED", f"({refused})"))


@pytest.fixture
def secret():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = Path(folder, "secret")
        path.write_text("secret")
        # What the same user may do without a sandbox, a program of theirs must not.
        os.chown(path, NOBODY, NOBODY) if os.geteuid() == 0 else None
        yield path
        assert path.read_text() == "secret"
        assert os.listdir(folder) == ["secret"]
        assert path.stat().st_mode & 0o777 == 0o644


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root_only
def test_root_needs_no_user_namespace():
    assert opened(ROOT) == ["root", ""]


def test_others_get_one():
    assert opened(NOBODY) == ["userns", ""]


@pytest.mark.parametrize(
    ("user", "placement"),
    [
        pytest.param(ROOT, "own-uid", marks=root_only),
        pytest.param(ROOT, "plain", marks=root_only),
        (NOBODY, "plain"),
    ],
)
def test_without_namespaces_all_four_properties_hold_by_other_means(user, placement, secret):
    cases = {
        "print(open('given').read())": "ok  given",
        "import os; print(os.listdir())": "ok  ['given']",
        "import asyncio; asyncio.run(asyncio.sleep(0)); print('slept')": "ok  slept",
        "import os; os.kill(os.getpid(), 15)": "signal 15 []",
        "import os; os.abort()": "signal 6 []",
        f"open({str(secret)!r})": "error  PermissionError",
        f"open({str(secret)!r} + '2', 'w')": "error  PermissionError",
        f"import os; os.unlink({str(secret)!r})": "error  PermissionError",
        f"import os; os.chmod({str(secret)!r}, 0o777)": "error  PermissionError",
        f"import os; os.utime({str(secret)!r})": "error  PermissionError",
        f"import os; os.truncate({str(secret)!r}, 0)": "error  PermissionError",
        f"import os; os.open({str(secret)!r}, os.O_RDONLY | os.O_TRUNC)": "error  PermissionError",
        "import os; os.open('given', os.O_TRUNC)": "error  PermissionError",
        "open('given', 'w')": "error  PermissionError",
        "open('new', 'w')": "error  PermissionError",
        "import os; os.mkdir('new')": "error  PermissionError",
        "open('/dev/null', 'w').write('x')": "ok  []",
        "import os; os.listdir('/dev/shm')": "error  PermissionError",
        "open('/proc/self/environ')": "error  PermissionError",
        "import os; os.listdir('/proc')": "error  PermissionError",
        "import os; os.kill(os.getppid(), 9)": "error  PermissionError",
        "import os; os.kill(-1, 9)": "error  PermissionError",
        "import os; os.pidfd_open(os.getppid())": "error  PermissionError",
        "import os; os.fork()": "error  BlockingIOError",
        "import threading; threading.Thread(target=print).start()": "error  RuntimeError",
        "import socket; socket.socket()": "error  PermissionError",
        "import socket; socket.socketpair(type=socket.SOCK_DGRAM)": "error  PermissionError",
    }
    first, notes, *ran = opened(user, refused="UNSHARE,", programs=tuple(cases), placement=placement)
    assert (first, notes) == (placement, "")
    assert dict(zip(cases, ran, strict=True)) == cases


@root_only
def test_root_that_may_not_make_namespaces_takes_a_uid_of_its_own():
    assert opened(ROOT, refused="UNSHARE,") == ["own-uid", ""]


def test_others_that_may_not_keep_theirs():
    assert opened(NOBODY, refused="UNSHARE,") == ["plain", ""]


def test_without_landlock_too_it_refuses_and_says_why():
    (line,) = opened(NOBODY, refused="UNSHARE, LANDLOCK,")
    assert "userns: unshare: Operation not permitted" in line
    assert "plain: no host_files_hidden" in line
    assert "switch Landlock on" in line
    assert "seccomp profile" in line
    assert "--allow-weak-isolation" in line


def test_weak_isolation_is_taken_only_with_leave_and_is_named(secret):
    programs = (f"print(open({str(secret)!r}).read())", "import os; os.fork()")
    placement, notes, read, fork = opened(
        NOBODY, refused="UNSHARE, LANDLOCK,", programs=programs, allow_weak_isolation=True
    )
    assert placement == "plain host_files_hidden"
    assert notes == "host_files_hidden: files of the host can be opened"
    assert (read, fork) == ("ok  secret", "error  BlockingIOError")


@root_only
def test_all_attacks_fail_in_an_unprivileged_user_namespace():
    of_the_pool = ("cancelling_kills_the_program_and_keeps_the_worker", "nothing_outlives_a_killed_host")
    tests = [
        *(str(HERE / name) for name in ("test_attacks.py", "test_limits.py")),
        *(f"{HERE / 'test_pool.py'}::test_{name}" for name in of_the_pool),
    ]
    python_as(NOBODY, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not docker", *tests)
