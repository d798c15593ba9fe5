"""One attack, one test. Each is a hole that a sandbox of this kind had, or could have."""

from __future__ import annotations

import os
import platform
import signal
import socket
import textwrap

import pytest

from tirjudge_sandbox import Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


@pytest.fixture(autouse=True)
async def _the_next_program_is_unharmed(run):
    yield
    execution = await run("import os; print(os.getcwd(), os.listdir())")
    assert (execution.status, execution.stdout) == (Status.OK, "/tmp []\n")


async def errno_of(run, call: str) -> int:
    execution = await run(LIBC + f"r = libc.{call}\nprint(ctypes.get_errno() if r == -1 else 0)")
    assert execution.status is Status.OK, execution.stderr
    return int(execution.stdout)


async def test_the_parents_environment(run, monkeypatch):
    monkeypatch.setenv("TIRJUDGE_TEST_KEY", "sk-secret")
    execution = await run("import os, sys; print(os.environ, sys.orig_argv)")
    assert "secret" not in execution.stdout
    assert os.getcwd() not in execution.stdout


async def test_a_file_of_the_host(run, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for path in (secret, "/etc/hostname", "/etc/passwd", "/proc/1/environ", __file__):
        execution = await run(f"print(open({str(path)!r}).read())")
        # A container has files of its own by some of these names, and keeps them shut.
        assert execution.stderr.splitlines()[-1].startswith(("FileNotFoundError", "PermissionError"))


async def test_the_root_folder(run):
    execution = await run(
        "import os\ntry: print(*os.listdir('/'))\nexcept PermissionError: pass  # as in a container"
    )
    assert execution.status is Status.OK
    assert set(execution.stdout.split()) <= {"dev", "etc", "lib", "lib32", "lib64", "python", "tmp", "usr"}


@pytest.mark.parametrize(
    "folder", ["/", "/python", "/python/lib", "/python/sandbox/guest", "/usr/lib", "/dev", "/etc"]
)
async def test_writing_outside_of_the_working_folder(run, folder):
    execution = await run(f"open({folder!r} + '/planted', 'w')")
    assert execution.stderr.splitlines()[-1].startswith(("OSError: [Errno 30]", "PermissionError"))


async def test_the_templates_descriptors_in_proc(run):
    execution = await run("import os; print(os.listdir('/proc/1/fd'))")
    assert execution.exit_code == 1


async def test_a_program_that_ran_before(run):
    await run("import sys, builtins, json; open('x', 'w').write('x'); builtins.left = json.left = 1")
    execution = await run(
        "import os, builtins, json\nprint(os.listdir(), hasattr(builtins, 'left'), hasattr(json, 'left'))"
    )
    assert execution.stdout == "[] False False\n"


async def test_network(run):
    source = f"import socket\nsocket.create_connection(('127.0.0.1', {_listening()}))"
    execution = await run(source)
    assert execution.stderr.splitlines()[-1].startswith("PermissionError")


def _listening() -> int:
    server = socket.create_server(("127.0.0.1", 0))
    port: int = server.getsockname()[1]
    server.close()
    return port


async def test_asyncio_works_although_sockets_are_refused(run):
    execution = await run("import asyncio\nasync def main(): print('ran')\nasyncio.run(main())")
    assert execution.stdout == "ran\n"


async def test_a_daemon_that_holds_the_output(run):
    source = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    print('done')
    """
    execution = await run(textwrap.dedent(source), processes=2)
    assert (execution.status, execution.stdout) == (Status.OK, "done\n")
    assert execution.wall_seconds < 10
    alone = await run("import os\ntry: os.kill(-1, 0)\nexcept ProcessLookupError: print('alone')")
    assert alone.stdout == "alone\n"


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
)
async def test_signals_to_the_template(run, number):
    execution = await run(f"import os; os.kill(1, {int(number)}); print('sent')")
    assert execution.stdout == "sent\n"


async def test_the_templates_limits(run):
    execution = await run("import resource; resource.prlimit(1, resource.RLIMIT_CPU, (0, 0))")
    assert execution.stderr.splitlines()[-1].startswith("PermissionError")


@pytest.mark.parametrize("call", ["setpriority(0, 1, 19)", "sched_setaffinity(1, 8, bytes([1] + [0] * 7))"])
async def test_the_templates_priority(run, call):
    assert await errno_of(run, call) == 1


@pytest.mark.parametrize("call", ["ptrace(16, 1, 0, 0)", "process_vm_readv(1, None, 0, None, 0, 0)"])
async def test_the_templates_memory(run, call):
    assert await errno_of(run, call) == 1


async def test_a_patched_exit(run):
    execution = await run("import os, sys; os._exit = lambda code: None; sys.exit(5)")
    assert (execution.exit_code, execution.stdout) == (5, "")


async def test_our_own_exit_patched_through_the_frames(run):
    source = """
    import sys
    frame = sys._getframe()
    while frame:
        for name in ('_exit', '_kill'):
            frame.f_globals[name] = lambda *a: None
        frame = frame.f_back
    print('patched', flush=True)
    """
    execution = await run(textwrap.dedent(source), cpu_seconds=0.3)
    assert (execution.status, execution.stdout) == (Status.CPU_LIMIT, "patched\n")


async def test_deleted_builtins(run):
    execution = await run("import builtins; vars(builtins).clear(); nothing")
    assert (execution.status, execution.exit_code) == (Status.ERROR, 1)
    assert "NameError" in execution.stderr
    execution = await run("import builtins, sys; vars(builtins).clear(); sys.exit(3)")
    assert execution.exit_code == 3


async def test_capabilities(run):
    source = LIBC + (
        "import struct\ndata = ctypes.create_string_buffer(24)\n"
        "number = {'x86_64': 125, 'aarch64': 90}[os.uname().machine]\n"
        "libc.syscall(number, struct.pack('Ii', 0x20080522, 0), data)\n"
        "print(data.raw == bytes(24), os.getuid() != 0)"
    )
    assert (await run(source)).stdout == "True True\n"


@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)",
        "setns(0, 0)",
        "mount(b'x', b'/tmp', b'tmpfs', 0, None)",
        "umount2(b'/tmp', 2)",
        "chroot(b'/tmp')",
        "setuid(0)",
        "sethostname(b'x', 1)",
        "socket(1, 1, 0)",
        "socketpair(16, 3, 0, ctypes.create_string_buffer(8))",
        "shmget(0, 4096, 0o1600)",
        "semget(0, 1, 0o1600)",
        "msgget(0, 0o1600)",
        "mq_open(b'/x', 0o102, 0o600, None)",
        "memfd_create(b'x', 0)",
        "inotify_init()",
        "syncfs(1)",
        "fanotify_init(0, 0)",
        "personality(0xffffffff)",
        "prctl(38, 1, 0, 0, 0)",
        "prctl(4, 1, 0, 0, 0)",
        "fcntl(0, 8, 1)",
        "fcntl(0, 10, 9)",
        "fcntl(0, 1024, 0)",
        "fcntl(0, 1026, 0)",
        "fcntl(1, 1031, 1 << 20)",
        "ioctl(0, 0x5412, b'x')",
        "execv(b'/python/bin/python3', (ctypes.c_char_p * 2)(b'x', None))",
        "syscall(ctypes.c_long(425), 8, ctypes.create_string_buffer(256))",
        "syscall(ctypes.c_long(438), 0, 0, 0)",
    ],
)
async def test_a_call_that_reaches_out(run, call):
    assert await errno_of(run, call) == 1


async def test_clone3_is_unknown_so_that_clone_is_used(run):
    assert await errno_of(run, "syscall(ctypes.c_long(435), 0, 0)") == 38


async def test_clone_into_a_new_namespace(run):
    number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
    execution = await run(
        LIBC + f"libc.syscall({number}, 0x10000011, 0, 0, 0, 0)\nprint(ctypes.get_errno())", processes=2
    )
    assert execution.stdout == "1\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="another architecture's second door")
async def test_x32_calls(run):
    assert await errno_of(run, "syscall(ctypes.c_long(0x40000000 + 39))") == 38


@pytest.mark.skipif(platform.machine() != "x86_64", reason="another architecture's second door")
async def test_32_bit_calls(run):
    source = """
    import ctypes, mmap
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex('b814000000cd80c3'))
    print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
    """
    execution = await run(textwrap.dedent(source))
    assert (execution.status, execution.signal) == (Status.SIGNAL, signal.SIGSYS)


async def test_a_report_of_its_own(run):
    source = """
    import os
    held = []
    for descriptor in range(3, 1024):
        try:
            os.fstat(descriptor)
            held.append(descriptor)
        except OSError:
            pass
    print(held)
    """
    assert (await run(textwrap.dedent(source))).stdout == "[]\n"


async def test_deep_folders(run):
    source = "import os\nfor n in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('deep')"
    execution = await run(source)
    assert (execution.status, execution.stdout) == (Status.OK, "deep\n")


async def test_folders_that_do_not_want_to_be_read(run):
    source = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\nfor p in ('a/b', 'a', '.'):\n    os.chmod(p, 0)"
    )
    assert (await run(source)).status is Status.OK


async def test_names_in_the_way_of_the_wiping(run):
    source = """
    import os
    for name in (b'\\xff', b'a\\nb', b'-rf', b'.wipe-1', b'0-1'):
        os.makedirs(os.path.join(name, name, name))
        os.symlink(b'/', name + b'/link')
        os.link(b'/tmp/' + name + b'/link', name + b'/hard')
    """
    assert (await run(textwrap.dedent(source))).status is Status.OK


async def test_modules_of_ours_are_not_at_hand(run):
    execution = await run("import sys; print([name for name in sys.modules if 'tirjudge' in name])")
    assert execution.stdout == "[]\n"


async def test_a_failing_sandbox_cannot_be_feigned(run):
    source = "import os, signal; print('SANDBOX_FAILED'); os.kill(os.getpid(), signal.SIGKILL)"
    assert (await run(source)).status is Status.SIGNAL
