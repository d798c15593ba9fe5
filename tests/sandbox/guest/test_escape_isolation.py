"""Attacks on others' data: the host's files and environment; earlier, concurrent and later programs."""

from __future__ import annotations

import asyncio
import textwrap

import pytest

from tests.rows import each_row
from tests.sandbox.targets import READ_ONLY, TRYING, calling, last_line, outcomes
from tirjudge_sandbox import Limits, Program, Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

READING = (
    "FileNotFoundError", "PermissionError", "NotADirectoryError", "IsADirectoryError", "OSError: [Errno 6]"
)  # fmt: skip


SHOWN = {"dev", "etc", "lib", "lib32", "lib64", "python", "tmp", "usr"}


async def test_the_hosts_environment(attack):
    """The memory around a program's environment, read without Python's decoding, holds no host variable."""
    source = """
    import sys
    strings = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, 'environ')[0] or id(sys)
    reader, writer = os.pipe()
    found = b''
    for page in range((strings & ~4095) - (64 << 12), (strings & ~4095) + (64 << 12), 4096):
        if libc.write(writer, ctypes.c_void_p(page), 4096) == 4096:
            found += os.read(reader, 4096)
    sys.stdout.buffer.write(found.replace(b'\\0', b' '))
    print(os.environ, sys.orig_argv, sys.argv)
    """
    execution = await attack(calling(source))
    assert execution.status is Status.OK
    assert "LANG=C.UTF-8" in execution.stdout
    for secret in ("PYTEST_CURRENT_TEST", "TIRJUDGE", "PYTHONPATH"):
        assert secret not in execution.stdout


async def test_a_file_of_the_host(attack, host):
    assert last_line(await attack(f"open({str(host.secret)!r})")).startswith(READING)


async def test_the_environment_of_a_process_of_the_host(attack, host):
    assert last_line(await attack(f"open('/proc/{host.process.pid}/environ')")).startswith(READING)


HOST_PATHS = (
    "/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/resolv.conf", "/root/.bashrc", "/home", "/run",
    "/var/run/docker.sock", "/run/docker.sock", "/run/systemd/metrics_log/dev-log", "/dev/log", "/var/log",
    "/boot", "/sys/kernel", "/sys/fs/cgroup/cgroup.procs", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/tty",
    "/dev/ptmx", "/dev/fuse", "/dev/kvm", "/dev/nvidia0", "/host", "/control", __file__,
)  # fmt: skip
KERNEL_PATHS = (
    "/proc/1/environ", "/proc/1/fd", "/proc/1/mem", "/proc/1/maps", "/proc/1/root/", "/proc/1/cwd/",
    "/proc/self/environ", "/proc/self/mem", "/proc/self/mountinfo",
    "/proc/kcore", "/proc/kallsyms", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/keys",
    "/proc/net/tcp", "/proc/meminfo", "/proc/sys/kernel/random/boot_id", "/dev/pts/0",
)  # fmt: skip
FOLDERS = ("/", "/python", "/python/lib", "/python/sandbox/guest", "/usr/lib", "/dev", "/etc", "/var/tmp")
CHANGES = (
    "os.chmod(path, 0o777)", "os.utime(path)", "os.truncate(path, 0)", "os.unlink(path)",
    "os.rename(path, path + '2')", "os.link(path, 'x')", "open(path, 'r+b')",
    "os.open(path, os.O_RDONLY | os.O_TRUNC)", "os.chown(path, os.getuid(), -1)",
)  # fmt: skip
READ_ONLY_DISK, ANOTHER_DISK = "OSError: [Errno 30]", "OSError: [Errno 18]"


@pytest.mark.parametrize(
    ("cases", "refusals"),
    [
        ({path: f"import os\nopen({path!r}).read(1)\nos.listdir({path!r})" for path in HOST_PATHS}, READING),
        (
            {
                path: f"import os\ntry: found = open({path!r}, 'rb').read(1)\n"
                f"except IsADirectoryError: os.listdir({path!r})"
                for path in KERNEL_PATHS
            },
            # The Docker engine mounts /dev/null over some of these.
            (*READING, "b''"),
        ),
        ({folder: f"open({folder!r} + '/planted', 'w')" for folder in FOLDERS}, (READ_ONLY_DISK, *READING)),
        (
            {way: f"import os\npath = os.__file__\n{way}" for way in CHANGES},
            (READ_ONLY_DISK, ANOTHER_DISK, *READING),
        ),
    ],
    ids=["paths of the host", "paths into the kernel", "writing outside of the folder", "changing a module"],
)
async def test_files_outside_of_the_working_folder(attack, cases, refusals):
    found = outcomes(await attack(TRYING, cases=cases))
    assert found.keys() == cases.keys()
    assert {case: outcome for case, outcome in found.items() if not outcome.startswith(refusals)} == {}


async def test_a_link_to_a_file_of_the_host(attack, host):
    source = f"import os; os.symlink({str(host.secret)!r}, 'x'); os.symlink('/proc/self/environ', 'y')"
    assert (await attack(source, fetch=("x", "y"))).files == {}


async def test_the_root_folder(attack):
    source = "import os\ntry: print(*os.listdir('/'))\nexcept PermissionError: pass"
    assert set((await attack(source)).stdout.split()) <= SHOWN


async def test_the_way_up(attack):
    source = "import os\nos.chdir('../' * 50)\nprint(os.stat('.').st_ino == os.stat('/').st_ino, os.getcwd())"
    assert (await attack(source)).stdout == "True /\n"


async def test_descriptors_of_ours(attack):
    source = """
    import fcntl
    held = []
    for descriptor in range(3, 1 << 16):
        try:
            fcntl.fcntl(descriptor, fcntl.F_GETFD)
            held.append(descriptor)
        except OSError:
            pass
    print(held)
    """
    assert (await attack(source)).stdout == "[]\n"


async def test_modules_of_ours(attack):
    execution = await attack("import sys; print([name for name in sys.modules if 'tirjudge' in name])")
    assert execution.stdout == "[]\n"


LEFT = {
    "files": ("open('left', 'w')", "import os; os.listdir()"),
    "a module": ("import json; json.left = 1", "import json; hasattr(json, 'left')"),
    "a function of a module": ("import json; json.dumps = print", "import json; json.dumps(1)"),
    "a builtin": ("import builtins; builtins.len = None", "len('x')"),
    "a class of C": (
        calling("import gc\ngc.get_referents(str.__dict__)[0]['upper'] = str.lower"),
        "'a'.upper()",
    ),
    "a small number": (calling("ctypes.memset(id(7) + 24, 9, 1)"), "7 + 0"),
    "the search path": ("import sys; sys.path.insert(0, '/left')", "import sys; sys.path"),
    "an importer": ("import sys; sys.meta_path.insert(0, object())", "import sys; len(sys.meta_path)"),
    "the environment": ("import os; os.environ['LEFT'] = '1'", "import os; dict(os.environ)"),
    "the folder": ("import os; os.chdir('/')", "import os; os.getcwd()"),
    "the mask of modes": ("import os; os.umask(0)", "import os; os.umask(0)"),
    "a limit": ("import resource; resource.setrlimit(7, (9, 9))", "import resource; resource.getrlimit(7)"),
    "signals": (
        "import signal; signal.signal(10, signal.SIG_IGN); signal.pthread_sigmask(0, {12})",
        "import signal; signal.getsignal(10), signal.pthread_sigmask(0, ())",
    ),
    "an alarm": ("import signal; signal.alarm(1)", "import signal; signal.alarm(0)"),
    "random numbers": ("import random; random.seed(99)", "import random; random.random()"),
    "what runs at exit": (
        "import atexit; atexit.register(print, 'left')",
        "import atexit; atexit._ncallbacks()",
    ),
    "recursion": ("import sys; sys.setrecursionlimit(50)", "import sys; sys.getrecursionlimit()"),
    "a trace": ("import sys; sys.settrace(print)", "import sys; sys.gettrace()"),
    "a hook for exceptions": ("import sys; sys.excepthook = print", "import sys; sys.excepthook.__name__"),
    "warnings": ("import warnings; warnings.simplefilter('error')", "import warnings; warnings.filters"),
    "standard input": ("import sys; sys.stdin.read()", "import sys; sys.stdin.read()"),
    "a stream": ("import os; os.close(0)", "import os; os.fstat(0).st_mode"),
    "the name of the process": (calling("libc.prctl(15, b'left')"), calling(
        "name = ctypes.create_string_buffer(16); libc.prctl(16, name); name.value")),
}  # fmt: skip


def showing(expression: str) -> Program:
    body, _, last = expression.rstrip().replace("; ", "\n").rpartition("\n")
    return Program(source=f"{body}\nprint({last})", stdin="given")


@each_row("name", LEFT)
async def test_nothing_of_a_program_is_left_to_the_next(attack, target, name):
    change, show = LEFT[name]
    before = await target.run(showing(show), Limits())
    assert before.status is Status.OK, before.stderr
    changed = await attack(change + "\n" + showing(show).source, stdin="given")
    assert (changed.status, changed.stdout) != (before.status, before.stdout)
    after = await target.run(showing(show), Limits())
    assert (after.status, after.stdout) == (before.status, before.stdout)


async def test_times_carry_nothing_to_the_next_program(attack, placement):
    left = """
    import os
    for path in ('.', '/dev/null', '/dev/zero', '/dev/full'):
        try:
            os.utime(path, ns=(1234, 1234))
            os.utime(path)
        except OSError:
            pass
    print(*(os.stat(path).st_mtime_ns for path in ('.', '/dev/null')))
    """
    await attack(left)
    found = (await attack("import os; print(*(os.stat(p).st_mtime_ns for p in ('.', '/dev/null')))")).stdout
    await asyncio.sleep(0.02)
    again = (await attack("import os; print(*(os.stat(p).st_mtime_ns for p in ('.', '/dev/null')))")).stdout
    folder, device = zip(found.split(), again.split(), strict=True)
    if placement not in READ_ONLY:
        assert folder == ("0", "0")
    assert placement == "docker" or device[0] == device[1], "a program has changed the host's device"


async def test_the_times_of_a_device_of_the_host(attack, placement):
    execution = await attack("import os; open('/dev/null', 'w').write('x'); os.utime('/dev/null')")
    # A container has devices of its own.
    assert execution.status is (Status.OK if placement == "docker" else Status.ERROR)
    assert placement == "docker" or last_line(execution).startswith(
        ("OSError: [Errno 30]", "PermissionError")
    )


CLOCKS = """
import os, time
for pid in (os.getpid(), 0, {}, os.getppid(), 1):
    try:
        print(time.clock_gettime((~pid << 3) | 2) >= 0, end=' ')
    except OSError:
        print('refused', end=' ')
"""
"""Reads the CPU time of processes: itself twice, one of the host, the supervisor, and the first process."""


async def test_the_cpu_time_of_other_processes(attack, host):
    """The supervisor's would tell a program how much work the one before it was."""
    execution = await attack(CLOCKS.format(host.process.pid))
    assert execution.stdout == "True True refused refused refused ", execution.stderr
    execution = await attack("import time; print(time.process_time() > 0, time.thread_time() > 0)")
    assert execution.stdout == "True True\n"


LOCKING = """
import fcntl, os, struct
file = open(os.__file__)
fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
"""
"""Locks a file that every program sees."""


HOLDING = (
    LOCKING
    + """
import time
print('locked', flush=True)
time.sleep(1)
"""
)
ASKING = (
    LOCKING
    + """
asked = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0)
print(struct.unpack('hhqqi', fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK)
"""
)


async def test_a_siblings_lock(attack, sibling):
    """Both lock the file, and neither notices the other."""
    other = asyncio.ensure_future(sibling.run(Program(source=HOLDING), Limits()))
    await asyncio.sleep(0.5)
    execution = await attack(ASKING)
    assert (await other).stdout == "locked\n"
    assert (execution.status, execution.stdout) == (Status.OK, "True\n"), execution.stderr


async def test_the_kernels_randomness_is_not_repeated(attack):
    source = "import os, uuid, secrets; print(os.urandom(16), uuid.uuid4(), secrets.token_hex())"
    assert (await attack(source)).stdout != (await attack(source)).stdout


@pytest.mark.parametrize("seed", [0, 1])
async def test_seeded_randomness_repeats_whatever_ran_before(attack, seed):
    source = "import random; print(random.random(), hash('x'))"
    first = await attack(source, seed=seed)
    await attack("import random; random.seed(5); random.random()", seed=3)
    assert (await attack(source, seed=seed)).stdout == first.stdout


async def start_concurrently(sibling, source: str, **limits: float) -> asyncio.Task:
    """Start a program in another worker, and continue once it runs."""
    program = Program(source=textwrap.dedent(source))
    task = asyncio.ensure_future(sibling.run(program, Limits(**limits)))
    await asyncio.sleep(0.1)
    return task


@pytest.mark.usefixtures("writable")
async def test_a_siblings_files(attack, sibling):
    task = await start_concurrently(sibling, "import time; open('secret', 'w').write('x'); time.sleep(0.3)")
    source = "import os; print([name for _, _, names in os.walk('/tmp') for name in names])"
    assert "secret" not in (await attack(source)).stdout
    assert (await task).status is Status.OK


async def test_a_siblings_processes(attack, sibling):
    task = await start_concurrently(sibling, "import time; time.sleep(0.3); print('lived')")
    source = """
    import os
    for number in range(2, 1 << 16):
        if number != os.getpid():
            try:
                os.kill(number, 9)
                print(number)
            except OSError:
                pass
    """
    assert (await attack(source)).stdout == ""
    assert (await task).stdout == "lived\n"


STARTING = """
import os, time
started = 0
try:
    while started < 50:
        if os.fork() == 0:
            time.sleep(60)
        started += 1
except OSError:
    pass
print(started)
time.sleep({})
"""


async def test_a_siblings_share_of_processes(attack, sibling):
    alone = await attack(STARTING.format(0), processes=3)
    task = await start_concurrently(sibling, STARTING.format(0.3), processes=3)
    assert (await attack(STARTING.format(0), processes=3)).stdout == alone.stdout
    assert (await task).stdout == alone.stdout


@pytest.mark.usefixtures("writable")
async def test_a_siblings_disk(attack, sibling):
    fill = "import time\ntry: open('x', 'wb').write(bytes(16 << 20))\nexcept OSError: pass\ntime.sleep(0.3)"
    task = await start_concurrently(sibling, fill)
    assert (await attack("print(open('x', 'wb').write(bytes(8 << 20)))")).stdout == f"{8 << 20}\n"
    assert (await task).status is Status.OK


async def test_a_siblings_message(attack, sibling):
    """System V ids and abstract socket names would be shared if the namespaces were."""
    source = """
    import socket, time
    try:
        server = socket.socket(socket.AF_UNIX)
        server.bind('\\0tirjudge')
        print('bound')
    except OSError:
        print('refused')
    """
    task = await start_concurrently(sibling, source)
    assert (await attack(source)).stdout == "refused\n"
    assert (await task).stdout == "refused\n"
