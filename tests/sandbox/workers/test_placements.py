"""Placements: the best one that a host allows is used, and errors name what the host does not allow."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sandbox.targets import ORDINARY, ROOT
from tirjudge_sandbox import Program, SandboxUnavailable, open_sandbox
from tirjudge_sandbox.containers import client
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.workers.host import candidate_placements
from tirjudge_sandbox.workers.worker import WorkerFailed, receive_report

HERE = Path(__file__).parents[1]


def python_as(user: int, *arguments: str, refused: str = "", code: int = 0) -> list[str]:
    """Run Python as `user` (as this user unless root) with some calls refused; return the printed lines."""
    lowered = [sys.executable, str(HERE / "unprivileged.py"), str(user)] if os.geteuid() == 0 else []
    denied = [sys.executable, str(HERE / "refusing.py"), refused] if refused else []
    command = [*lowered, *denied, sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout.splitlines()


def opened(user: int, *programs: str, refused: str = "", **options: object) -> list[str]:
    """Return the lines that opening.py prints."""
    return python_as(user, str(HERE / "opening.py"), json.dumps(options), *programs, refused=refused)


def _errno(call: str) -> str:
    return f"import os\ntry:\n    {call}\nexcept OSError as error:\n    print(error.errno)"


COUNT_THREADS = """
import threading, time
started = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError:
    print(started)
"""


def attacks(secret: str, *, threads: bool) -> dict[str, str]:
    """Return programs with their expected ends without namespaces.

    `secret`: a file of the host. `threads`: the kernel counts the threads of the programs' user, as it does
    for all but the first user.
    """
    return {
        COUNT_THREADS: f"ok {3 if threads else 0}",
        "print(open('given').read())": "ok given",
        "import os; print(os.listdir())": "ok ['given']",
        "import asyncio; asyncio.run(asyncio.sleep(0)); print('slept')": "ok slept",
        "import os; os.kill(os.getpid(), 15)": "signal 15",
        "import os; os.abort()": "signal 6",
        f"open({secret!r})": "error PermissionError",
        f"open({secret!r} + '2', 'w')": "error PermissionError",
        f"import os; os.unlink({secret!r})": "error PermissionError",
        f"import os; os.chmod({secret!r}, 0o777)": "error PermissionError",
        f"import os; os.utime({secret!r})": "error PermissionError",
        # Refused by the seccomp filter, since the first versions of Landlock do not cover it.
        _errno(f"os.truncate({secret!r}, 0)"): f"ok {errno.EPERM}",
        _errno(f"os.open({secret!r}, os.O_TRUNC)"): f"ok {errno.EPERM}",
        _errno("os.open('given', os.O_TRUNC)"): f"ok {errno.EPERM}",
        _errno("os.open('given', os.O_WRONLY | os.O_TRUNC)"): f"ok {errno.EACCES}",
        "open('given', 'w')": "error PermissionError",
        "open('new', 'w')": "error PermissionError",
        "import os; os.mkdir('new')": "error PermissionError",
        "open('/dev/null', 'w').write('x')": "ok",
        "import os; os.listdir('/dev/shm')": "error PermissionError",
        "open('/proc/self/environ')": "error PermissionError",
        "import os; os.listdir('/proc')": "error PermissionError",
        "import os; os.kill(os.getppid(), 9)": "error PermissionError",
        "import os; os.kill(-1, 9)": "error PermissionError",
        "import os; os.pidfd_open(os.getppid())": "error PermissionError",
        "import os; os.fork()": "error BlockingIOError",
        "import socket; socket.socket()": "error PermissionError",
        "import socket; socket.socketpair(type=socket.SOCK_DGRAM)": "error PermissionError",
    }


@pytest.fixture
def secret():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        path = Path(folder, "secret")
        path.write_text("secret")
        # The same user may do this outside of the sandbox, but their program must not.
        os.chown(path, ORDINARY, ORDINARY) if os.geteuid() == 0 else None
        yield path
        assert path.read_text() == "secret"
        assert os.listdir(folder) == ["secret"]
        assert path.stat().st_mode & 0o777 == 0o644


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@root_only
def test_root_needs_no_user_namespace():
    assert opened(ROOT) == ["root", ""]


def test_other_users_get_a_user_namespace():
    assert opened(ORDINARY) == ["userns", ""]


@pytest.mark.parametrize(
    ("user", "placement"),
    [
        pytest.param(ROOT, "own-uid", marks=root_only),
        pytest.param(ROOT, "plain", marks=root_only),
        (ORDINARY, "plain"),
    ],
    ids=("root-own-uid", "root-plain", "ordinary-plain"),
)
def test_without_namespaces_all_four_properties_hold_by_other_means(user, placement, secret):
    cases = attacks(str(secret), threads=(user, placement) != (ROOT, "plain"))
    first, notes, *ran = opened(user, *cases, refused="unshare", placement=placement)
    assert (first, notes) == (placement, "")
    assert dict(zip(cases, ran, strict=True)) == cases


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize(
    ("started", "placement"),
    [
        pytest.param({}, "own-uid", marks=pytest.mark.slow),
        pytest.param({"user": "1000:100"}, "plain", marks=pytest.mark.slow),
        pytest.param({"cap_drop": ["ALL"]}, "plain", marks=pytest.mark.slow),
        ({"cap_drop": ["ALL"], "user": "65534", "security_opt": ["no-new-privileges:true"]}, "plain"),
    ],
    ids=("root", "user", "root-without-capabilities", "hardened"),
)
def test_a_container_is_a_host_too(docker_image, started, placement):
    cases = attacks("/etc/hostname", threads=started != {"cap_drop": ["ALL"]})
    output = client.call(
        lambda docker: docker.containers.run(
            docker_image,
            ["python3", "/repository/tests/sandbox/opening.py", "{}", *cases],
            entrypoint=[],
            environment={"PYTHONPATH": "/repository/sandbox"},
            volumes={str(HERE.parents[1]): {"bind": "/repository", "mode": "ro"}},
            network_mode="none",
            remove=True,
            **{"user": "0", **started},
        )
    )
    first, notes, *ran = output.decode().splitlines()
    assert (first, notes) == (placement, "")
    assert dict(zip(cases, ran, strict=True)) == cases


@root_only
def test_root_without_namespaces_takes_a_separate_uid():
    assert opened(ROOT, refused="unshare") == ["own-uid", ""]


def test_other_users_without_namespaces_keep_their_uid():
    assert opened(ORDINARY, refused="unshare") == ["plain", ""]


def test_without_landlock_and_namespaces_it_refuses_with_the_reason():
    (line,) = opened(ORDINARY, refused="unshare,landlock")
    assert "userns: unshare: Operation not permitted" in line
    assert "plain: no host_files_hidden" in line
    assert "enable Landlock" in line
    assert "seccomp profile" in line
    assert "--allow-weak-isolation" in line


def test_a_step_that_fails_where_the_standard_library_is_gone_is_named():
    (line,) = opened(ORDINARY, refused="mount_setattr", placement="userns")
    assert "userns: mount_setattr: Operation not permitted" in line


def test_weak_isolation_needs_permission_and_is_reported(secret):
    programs = (f"print(open({str(secret)!r}).read())", "import os; os.fork()")
    placement, notes, read, fork = opened(
        ORDINARY, *programs, refused="unshare,landlock", allow_weak_isolation=True
    )
    assert placement == "plain host_files_hidden"
    assert notes == "host_files_hidden: files of the host can be opened"
    assert (read, fork) == ("ok secret", "error BlockingIOError")


async def test_a_placement_without_namespaces_has_no_notebooks_and_says_why():
    with pytest.raises(SandboxUnavailable, match=r"here \(plain: sockets of programs need namespaces\)"):
        await open_sandbox("jupyter", placement="plain").__aenter__()


EDITABLE = (
    "__editable___x_1_0_finder.py", "__pycache__/__editable___x_1_0_finder.cpython-311.pyc", "_x.pth",
    "x.egg-link", "x-1.0.dist-info/direct_url.json",
)  # fmt: skip
NAMED = """
import os
for folder, _, names in os.walk('/python/site-0'):
    for name in names:
        if '/of/somebody' in open(os.path.join(folder, name)).read():
            print(name)
"""


async def test_no_file_of_an_installer_names_a_folder_of_the_host(tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    for name in (*EDITABLE, "module.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("# /of/somebody")
    tmp_path.chmod(0o755)
    monkeypatch.syspath_prepend(str(site))
    async with LocalSandbox(capacity=1, preload=(), placement=candidate_placements()[0]) as box:
        found = await box.run(Program(source=NAMED))
    assert (found.stdout, found.stderr) == ("module.py\n", "")
    assert all((site / name).read_text() == "# /of/somebody" for name in EDITABLE)


async def test_the_reason_of_a_worker_that_ended_without_reading_is_reported():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with ours:
        with theirs:
            ours.send(b"a program that nobody reads")
            theirs.send(json.dumps({"failed": "unshare: Operation not permitted"}).encode())
        with pytest.raises(WorkerFailed, match="unshare: Operation not permitted"):
            await receive_report(ours)


DOCTOR = "from tirjudge.cli import main; main()", "sandbox", "doctor"


def test_the_doctor_tries_every_placement():
    lines = python_as(ORDINARY, "-c", *DOCTOR, refused="unshare")
    found = {tuple(line.split()[:2]): line.split()[2:] for line in lines if line.startswith("local  ")}
    assert found == {
        ("local", "root"): ["-"] * 4,
        ("local", "userns"): ["-"] * 4,
        ("local", "own-uid"): ["-"] * 4,
        ("local", "plain"): ["yes"] * 4,
    }
    assert "local userns: unshare: Operation not permitted" in lines
    assert "local own-uid: only for root" in lines
    assert any(line.startswith("docker") for line in lines)
    ending = "Programs there can write no files and start no processes (subprocess, multiprocessing)."
    assert lines[-1] == f"The local sandbox runs programs in `plain`. {ending}"


@pytest.mark.slow
def test_the_doctor_suggests_remedies():
    lines = python_as(ORDINARY, "-c", *DOCTOR, refused="unshare,landlock", code=1)
    assert any(line.split() == ["local", "plain", "NO", "yes", "yes", "yes"] for line in lines)
    advice = lines[lines.index("The local sandbox refuses to run programs here. Remedies:") + 1 :]
    assert advice[0].startswith("- enable Landlock")
    assert advice[-1].endswith("--allow-weak-isolation")


@pytest.mark.slow
@root_only
def test_all_limits_hold_in_an_unprivileged_user_namespace():
    tests = str(HERE / "guest" / "test_limits.py")
    python_as(ORDINARY, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not docker", tests)
