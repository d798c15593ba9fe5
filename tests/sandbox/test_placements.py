"""What a machine allows decides where programs run; what it does not allow is named."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# The first lines refuse `unshare` to all that follows, as container runtimes do.
DENIED = """
import asyncio, ctypes, os, struct, sys
from tirjudge_sandbox import Limits, Program, SandboxUnavailable
from tirjudge_sandbox.guest import privileges, syscalls, libc
from tirjudge_sandbox.local import LocalSandbox

unshare = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, unshare), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in code), 32)
privileges.forbid_new()
libc.syscall("seccomp", syscalls.setup("seccomp"), 1, 0, struct.pack("HxxxxxxQ", 4, ctypes.addressof(packed)))

async def refuse():
    try:
        async with LocalSandbox(preload=()):
            print("opened")
    except SandboxUnavailable as error:
        print(error)

async def accept():
    async with LocalSandbox(capacity=1, preload=(), allow_weak_isolation=True) as box:
        async def run(source, **fields):
            return await box.run(Program(source=source), Limits(wall_seconds=2, cpu_seconds=1, **fields))
        first = await run("print(sum(range(4)))\\nopen('x', 'w').write('x')")
        print(first.stdout.strip(), first.isolation.placement, *first.isolation.missing)
        print(len(first.isolation.notes))
        for source in (
            "import os; print(os.listdir())",
            f"print(open({SECRET!r}).read())",
            f"open({SECRET!r} + '2', 'w')",
            "import os; os.kill(os.getppid(), 9)",
            "import os; os.fork()",
            "import socket; socket.socket()",
        ):
            ran = await run(source)
            print(ran.status, (ran.stdout + ran.stderr).splitlines()[-1].split(":")[0])
"""


def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run our Python without privileges, whoever we are."""
    lowered = [sys.executable, str(HERE / "unprivileged.py")] if os.geteuid() == 0 else []
    command = [*lowered, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def denied():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        secret = Path(folder, "secret")
        secret.write_text("secret")

        def run(call: str) -> list[str]:
            source = DENIED + f"\nSECRET = {str(secret)!r}\nasyncio.run({call}())"
            return as_nobody("-c", source).stdout.splitlines()

        yield run


def test_without_namespaces_it_refuses_and_says_why(denied):
    (line,) = denied("refuse")
    assert "unshare: Operation not permitted" in line
    assert "kernel.apparmor_restrict_unprivileged_userns" in line
    assert "--allow-weak-isolation" in line


def test_weak_isolation_is_taken_only_with_leave_and_is_named(denied):
    properties, notes, *attacks = denied("accept")
    assert properties == "6 plain host_files_hidden processes_contained"
    assert notes == "2"
    assert attacks == [
        "ok []",
        "error PermissionError",
        "error PermissionError",
        "error PermissionError",
        "error BlockingIOError",
        "error PermissionError",
    ]


PLACEMENT = """
import asyncio
from tirjudge_sandbox import Program
from tirjudge_sandbox.local import LocalSandbox

async def main():
    async with LocalSandbox(capacity=1, preload=()) as box:
        isolation = (await box.run(Program(source=""))).isolation
        print(isolation.placement, isolation.missing)

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_needs_no_user_namespace():
    done = subprocess.run([sys.executable, "-c", PLACEMENT], capture_output=True, text=True, check=True)
    assert done.stdout == "root ()\n"


def test_others_get_one():
    assert as_nobody("-c", PLACEMENT).stdout == "userns ()\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests have already run without privileges")
def test_all_attacks_fail_in_an_unprivileged_user_namespace():
    of_the_pool = ("cancelling_kills_the_program_and_keeps_the_worker", "nothing_outlives_a_killed_host")
    tests = [
        *(str(HERE / name) for name in ("test_attacks.py", "test_limits.py")),
        *(f"{HERE / 'test_pool.py'}::test_{name}" for name in of_the_pool),
    ]
    as_nobody("-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not docker", *tests)
