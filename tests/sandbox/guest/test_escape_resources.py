"""Attacks on the machine's resources: limits end the program, and everything it took is released."""

from __future__ import annotations

import os
import zlib

import pytest

from tests.rows import each_row
from tests.sandbox.targets import MIB, TRYING, calling, last_line, outcomes
from tirjudge_sandbox import Status

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = {"wall_seconds": 0.3, "cpu_seconds": 0.2}
"""Limits for programs that do not end by themselves."""


async def test_forking(attack):
    assert last_line(await attack("import os; os.fork()")).startswith(("BlockingIOError", "PermissionError"))


async def test_forking_by_the_system_calls(attack):
    """The new call forks as a child, as a child without an exit signal, and like vfork.

    The C library does not make the old calls fork and vfork (57 and 58) any more.
    """
    source = """
    number = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
    calls = [(number, 17), (number, 0), (number, 0x4111)]
    if os.uname().machine == 'x86_64':
        calls += [(57, 0), (58, 0)]
    for call in calls:
        if libc.syscall(*call, 0, 0, 0, 0) == 0:
            libc._exit(7)
        print(*call, sep='/', end=f': {ctypes.get_errno()}\\n')
    """
    found = outcomes(await attack(calling(source)))
    assert len(found) == (5 if os.uname().machine == "x86_64" else 3)
    assert set(found.values()) <= {"11", "1"}, found


BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


async def test_a_fork_bomb_where_some_processes_are_allowed(attack):
    execution = await attack(BOMB, processes=4, **SOON)
    assert execution.status in (Status.CPU_LIMIT, Status.WALL_LIMIT)


async def test_processes_that_end_before_they_are_counted(attack):
    source = """
    import os
    for n in range(300):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    print('done')
    """
    execution = await attack(source, processes=1)
    assert execution.stdout in ("done\n", "")
    assert execution.stdout or "Error" in last_line(execution)


async def test_orphans_of_orphans(attack):
    source = """
    import os, time
    for n in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
    """
    assert (await attack(source, processes=6)).wall_seconds < 30


async def test_a_daemon_that_holds_the_output(attack):
    source = """
    import os, time
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
    except OSError:
        pass
    print('done')
    """
    execution = await attack(source, processes=2)
    assert (execution.status, execution.stdout) == (Status.OK, "done\n")
    assert execution.wall_seconds < 30


THREADS = """
import threading, time
threading.stack_size(32768)
started = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
finally:
    print(started)
"""


@pytest.mark.alone
async def test_a_thread_bomb(attack):
    """Three times, since threads of one program must not be missing in the next.

    In the placement `plain`, the kernel counts the processes of other tests' sandboxes too.
    """
    for _ in range(3):
        execution = await attack(THREADS)
        assert (execution.status, execution.stdout) == (Status.ERROR, "32\n")
        assert last_line(execution) == "RuntimeError: can't start new thread"


async def test_a_thread_bomb_that_never_gives_up(attack):
    source = """
    import threading
    def breed():
        while True:
            try:
                threading.Thread(target=breed, daemon=True).start()
            except RuntimeError:
                pass
    breed()
    """
    assert (await attack(source, **SOON)).status in (Status.CPU_LIMIT, Status.WALL_LIMIT)


async def test_threads_by_the_system_call(attack):
    """A thread on a stack that is no mapping of its own, so that no address space bounds their number."""
    source = """
    import threading
    number = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
    flags = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000
    try:
        while True:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
    except RuntimeError:
        stack = ctypes.create_string_buffer(1 << 16)
        print(libc.syscall(number, flags, ctypes.addressof(stack) + (1 << 15), 0, 0, 0), ctypes.get_errno())
    """
    assert (await attack(calling(source))).stdout == "-1 11\n"


async def test_a_fork_with_the_flags_of_a_thread(attack):
    """The flag of a thread without shared memory and signals, which the kernel refuses, starts nothing."""
    source = """
    number = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
    print([libc.syscall(number, flags, 0, 0, 0, 0) for flags in (0x10011, 0x10111, 0x10811)])
    """
    assert (await attack(calling(source))).stdout == "[-1, -1, -1]\n"


async def test_a_filter_of_its_own(attack):
    source = """
    number = {'x86_64': 317, 'aarch64': 277}[os.uname().machine]
    print([(libc.syscall(number, mode, flags, 0), ctypes.get_errno()) for mode in (0, 1) for flags in (0, 8)])
    """
    assert (await attack(calling(source))).stdout == f"{[(-1, 1)] * 4}\n"


@pytest.mark.alone
async def test_threads_where_some_are_allowed(attack):
    source = """
    import threading, time
    started = 0
    try:
        while started < 1000:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            started += 1
    except RuntimeError:
        pass
    print(started)
    """
    assert (await attack(source, processes=3)).stdout in ("3\n", "0\n")


async def test_a_thread_that_is_left_behind(attack):
    source = """
    import threading, time
    threading.Thread(target=time.sleep, args=(60,)).start()
    print('main', flush=True)
    """
    execution = await attack(source, processes=1, **SOON)
    assert (execution.status, execution.stdout) in [(Status.WALL_LIMIT, "main\n"), (Status.ERROR, "")]


async def test_a_daemon_thread_that_spins(attack):
    source = """
    import threading
    def spin():
        while True: pass
    try:
        threading.Thread(target=spin, daemon=True).start()
    except RuntimeError:
        pass
    """
    assert (await attack(source, processes=1)).status is Status.OK


MEMORY = {
    "one object": "kept = bytearray(256 << 20)",
    "many objects": "kept = []\nwhile True: kept.append(bytearray(1 << 16))",
    "a string that doubles": "kept = 'x'\nwhile True: kept += kept",
    "a list of itself": "kept = [0]\nwhile True: kept *= 2",
    "private pages": "import mmap\n"
    "kept = [mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE) for _ in range(99)]",
    "shared pages": "import mmap\nkept = [mmap.mmap(-1, 16 << 20) for _ in range(99)]",
    "unreserved pages": "import mmap\nmmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | 0x4000 | 0x20)",
    "the heap's end": calling(
        "libc.sbrk.restype = ctypes.c_ssize_t\nif libc.sbrk(256 << 20) == -1: raise MemoryError"
    ),
    "a stack": "import threading; threading.stack_size(256 << 20); threading.Thread(target=print).start()",
    "what was packed": "import sys, zlib\nzlib.decompress(sys.stdin.read().encode('latin-1'))",
    "a message": "raise ValueError('x' * (100 << 20))",
    "a large power": "x = 1 << (1 << 32)",
    "a product": "import itertools; list(itertools.product(range(1000), repeat=3))",
}


@each_row("name", MEMORY)
async def test_memory(attack, name):
    packed = zlib.compress(bytes(96 << 20)).decode("latin-1") if "packed" in name else ""
    execution = await attack(MEMORY[name], stdin=packed, memory_bytes=64 * MIB, processes=1)
    assert execution.status in (Status.ERROR, Status.MEMORY_LIMIT)
    assert execution.max_rss_bytes < 256 * MIB


FULL = """
import os, socket
held, size = [], 0
def fill(descriptor):
    global size
    os.set_blocking(descriptor, False)
    try:
        while True:
            size += os.write(descriptor, bytes(1 << 16))
    except BlockingIOError:
        held.append(descriptor)
try:
    while True:
        {}
except OSError as error:
    print(len(held), size >> 20, error.errno)
"""


async def test_full_pipes(attack):
    found = (await attack(FULL.format("fill(os.pipe()[1])"))).stdout.split()
    assert int(found[0]) < 32
    assert (int(found[1]) <= 2, found[2]) == (True, "24")


async def test_full_socketpairs(attack):
    """In both directions: each socket holds 224 KiB."""
    source = FULL.format("a, b = socket.socketpair(); held += [a, b]; fill(a.fileno()); fill(b.fileno())")
    found = (await attack(source)).stdout.split()
    assert (int(found[1]) <= 14, found[2]) == (True, "24")


BUFFERS = {"SO_SNDBUF": 7, "SO_RCVBUF": 8, "SO_SNDBUFFORCE": 32, "SO_ATTACH_FILTER": 26}
REFUSED = {
    **{
        name: f"import socket; socket.socketpair()[0].setsockopt(socket.SOL_SOCKET, {number}, 1 << 24)"
        for name, number in BUFFERS.items()
    },
    "a larger pipe": "import fcntl; fcntl.fcntl(1, 1031, 1 << 20)",
    "a memory file": "import os; os.memfd_create('tirjudge')",
    # The kernel counts a watch for each number that a file has in each epoll, and has one limit for a user.
    "watches": calling("if libc.epoll_create1(0) == -1: raise OSError(ctypes.get_errno(), 'refused')"),
    "watches by the older call": calling(
        "if libc.epoll_create(1) == -1: raise OSError(ctypes.get_errno(), 'refused')"
    ),
    # A descriptor that is sent and not yet received is open, and no limit of the process counts it.
    "a descriptor in flight": "import os, socket; socket.send_fds(socket.socketpair()[0], [b'x'], [1])",
}


async def test_calls_that_would_hold_more_memory_are_refused(attack):
    found = outcomes(await attack(TRYING, cases=REFUSED))
    assert found.keys() == REFUSED.keys()
    assert all(outcome.startswith("PermissionError") for outcome in found.values()), found


async def test_options_of_sockets_that_hold_nothing(attack):
    source = "import socket; socket.socketpair()[0].settimeout(1); a = socket.socketpair()[0]\n"
    source += "a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1); print('done')"
    assert (await attack(source)).stdout == "done\n"


COUNTED = {
    "descriptors": """
import os
held = []
try:
    while True: held.append(os.dup(1))
except OSError as error:
    found = error.errno, len(held) < 64
while held: os.close(held.pop())
""",
    "timers": calling("""
    count = 0
    while count < 9999 and libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0:
        count += 1
    found = count <= 256
    """),
    "queued signals": calling("""
    import signal
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    count = 0
    while count < 9999 and libc.sigqueue(os.getpid(), 40, None) == 0:
        count += 1
    found = count <= 256
    """),
    "locked pages": calling(
        "page = ctypes.create_string_buffer(1 << 20)\nfound = libc.mlock(page, 1 << 20) == -1"
    ),
}


async def test_the_kernels_objects_are_counted(attack):
    found = outcomes(await attack(TRYING, cases=COUNTED))
    assert found == {**dict.fromkeys(COUNTED, "True"), "descriptors": "(24, True)"}


async def test_limits_of_its_own_raised(attack):
    names = ["CPU", "AS", "FSIZE", "NPROC", "NOFILE", "MEMLOCK", "CORE", "MSGQUEUE"]
    source = f"""
    import resource
    for name in {names}:
        kind = getattr(resource, 'RLIMIT_' + name)
        soft, hard = resource.getrlimit(kind)
        assert hard != -1
        try:
            resource.setrlimit(kind, (soft, hard + 1))
        except (ValueError, PermissionError):
            print(name)
    """
    assert (await attack(source)).stdout.split() == names


async def test_recursion(attack):
    assert last_line(await attack("def f(): f()\nf()")).startswith("RecursionError")


async def test_recursion_through_the_end_of_the_stack(attack):
    source = "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(_): return sorted([0], key=f)\nf(0)"
    execution = await attack(source)
    assert (execution.status, execution.signal) in [(Status.SIGNAL, 11), (Status.ERROR, None)]


async def test_long_numbers_as_text(attack):
    assert last_line(await attack("print(10 ** 5000)")).startswith("ValueError: Exceeds the limit")


async def test_input_that_nobody_reads(attack):
    execution = await attack("print('done')", stdin="x" * (8 << 20))
    assert (execution.status, execution.stdout) == (Status.OK, "done\n")
