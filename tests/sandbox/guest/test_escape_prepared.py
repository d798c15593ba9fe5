"""Attacks on later programs by way of what the prepared program left to all of them, in every placement."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.rows import each_row
from tests.sandbox.guest.test_escape_isolation import LEFT, showing
from tests.sandbox.serving import serving
from tests.sandbox.targets import MARKS, PLACEMENTS, READ_ONLY, calling, outcomes
from tirjudge_sandbox import Limits, Program, Sandbox, Status
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.remote import RemoteSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREPARED = Program(
    '''
"""Names: everything below."""
import array, collections, decimal, io, sys
import functools, itertools, json, mmap, os, random, signal, sqlite3, threading
import helper

def scale(values, by=[2]):
    return [value * by[0] for value in values]

@functools.lru_cache
def known(key):
    return len(key)

class Table:
    name = "prepared"
    rows = [[1, 2], [3, 4]]

numbers = array.array("d", range(10_000))
text = bytearray(b"prepared")
database = sqlite3.connect(":memory:")
database.execute("create table t (x)")
database.execute("insert into t values (1)")
counter = itertools.count()
generator = random.Random(7)
lock = threading.Lock()
seen = []
opened = open("table.csv")
mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
signal.signal(signal.SIGUSR1, lambda *_: seen.append("signal"))
signal.signal(signal.SIGTERM, lambda *_: seen.append("signal"))
signal.setitimer(signal.ITIMER_REAL, 3600)
open("left", "w").write("left")
os.chdir("/")
os.umask(0)
print("printed", end="")
sys.stdout = io.StringIO()
''',
    files={"table.csv": b"a,b\n1,2\n", "helper.py": b"state = {'n': 1}\n", "deep/er/x": b""},
)

HTTP = "http"
"""The placement of a server, for a client of which programs run."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=MARKS.get(name, pytest.mark.slow if name == "plain" else ()))
        for name in (*PLACEMENTS, HTTP)
    ],
)
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "docker":
        request.getfixturevalue("docker_image")
    return name


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def box(place: str) -> AsyncIterator[Sandbox]:
    async with contextlib.AsyncExitStack() as stack:
        if place == HTTP:
            served = stack.enter_context(
                serving(box=LocalSandbox(capacity=1, preload=(), spare=0, prepare=PREPARED))
            )
            yield await stack.enter_async_context(RemoteSandbox(served.url))
        else:
            yield await stack.enter_async_context(PLACEMENTS[place](prepare=PREPARED))


CHANGES = {
    "a list": ("Table.rows[0].append(9)", "Table.rows"),
    "a name": ("numbers = None; scale = print; globals().pop('text')", "sorted(globals()), len(numbers)"),
    "a name of the module": ("import __main__; __main__.numbers = 7", "len(numbers)"),
    "a class": ("Table.name = 'changed'; del Table.rows", "Table.name, Table.rows"),
    "the code of a function": ("scale.__code__ = (lambda values, by: 0).__code__", "scale([1])"),
    "a default of a function": ("scale.__defaults__[0][0] = 5", "scale([1])"),
    "the namespace of a function": ("scale.__globals__['len'] = lambda _: 0; known('xy')", "known('xy')"),
    "a cache": ("known('left')", "known.cache_info()"),
    "numbers in memory": ("numbers[:] = array.array('d', [7.0]) * len(numbers)", "sum(numbers)"),
    "bytes behind Python": (
        calling("ctypes.memset((ctypes.c_char * 8).from_buffer(text), 88, 8)"),
        "bytes(text)",
    ),
    "a module": ("helper.state['n'] = 2; helper.left = 1", "vars(helper).keys(), helper.state"),
    "the table of modules": ("import sys; del sys.modules['helper']", "import sys; 'helper' in sys.modules"),
    "a database": (
        "database.execute('insert into t values (2)'); database.commit()",
        "list(database.execute('select * from t'))",
    ),
    "an iterator": ("next(counter); next(counter)", "counter"),
    "a generator of random numbers": ("generator.random()", "generator.random()"),
    "a lock": ("lock.acquire()", "lock.locked()"),
    "what is frozen": (
        "import gc; gc.unfreeze(); Table.rows.clear(); gc.collect()",
        "import gc; Table.rows, gc.get_freeze_count() > 0",
    ),
    "a reference count": (
        calling("[ctypes.pythonapi.Py_DecRef(ctypes.py_object(Table.rows)) for _ in range(1)]"),
        "Table.rows",
    ),
    "an exit handler": (
        "import atexit; atexit.register(seen.append, 1)", "import atexit; atexit._ncallbacks()"
    ),
    "a handler of forks": (
        "os.register_at_fork(before=lambda: seen.append(1), after_in_parent=lambda: seen.append(2))",
        "seen",
    ),
    "the environment": ("os.environ['LEFT'] = '1'", "dict(os.environ)"),
    "a context": ("decimal.getcontext().prec = 3", "decimal.getcontext().prec"),
    "a file": ("os.write(opened.fileno(), b'left')", "mapped[:]"),
}  # fmt: skip


SHOWN_TOO = [(f"{change}\n{showing(show).source}", show) for change, show in CHANGES.values()]


@each_row("change, show", [*SHOWN_TOO, *LEFT.values()])
async def test_no_program_changes_what_the_next_one_finds(box, change, show):
    before = await box.run(showing(show), Limits())
    assert before.status is Status.OK, before.stderr
    await box.run(Program(change, stdin="given"), Limits())
    after = await box.run(showing(show), Limits())
    assert (after.status, after.stdout) == (before.status, before.stdout)


@each_row("name", [name for name in CHANGES if name not in ("a handler of forks", "a file")])
async def test_the_changes_are_changes(box, name):
    """Each is seen by its own program, or ends it: the test above tries something."""
    change, show = CHANGES[name]
    before = await box.run(showing(show), Limits())
    changed = await box.run(Program(change + "\n" + showing(show).source), Limits())
    assert (changed.status, changed.stdout) != (before.status, before.stdout)


async def test_memory_of_a_file_cannot_be_made_writable(box):
    source = calling("""
    address = ctypes.addressof(ctypes.py_object(mapped))
    libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    view = memoryview(mapped)
    class Buffer(ctypes.Structure):
        _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                    ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                    ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]
    found = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(found), 0)
    print(ctypes.string_at(found.buf, 3), libc.mprotect(found.buf, 4096, 3), ctypes.get_errno())
    """)
    assert (await box.run(Program(source), Limits())).stdout == "b'a,b' -1 13\n"


async def test_signals_reach_no_handler_of_the_prepared_program(box):
    """In the supervisor such a handler would run for one program and be seen by the next."""
    source = """
    import os, time
    for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD):
        for pid in (os.getppid(), 1):
            try: os.kill(pid, number)
            except OSError: pass
    time.sleep(0.1)
    """
    ended = await box.run(Program(source.replace("\n    ", "\n")), Limits())
    assert ended.status is Status.OK, ended.stderr
    show = "print(seen, signal.getsignal(15) == signal.SIG_DFL, signal.getitimer(signal.ITIMER_REAL))"
    assert (await box.run(Program(show), Limits())).stdout == "[] True (0.0, 0.0)\n"


async def test_what_the_prepared_program_printed_opened_and_wrote_is_gone(box, place):
    cases = {
        "files": "found = os.listdir()",
        "folder": "found = os.getcwd() == os.environ['HOME']",
        "umask": "found = os.umask(0) & 0o002",
        "descriptor": "opened.read()",
        "script": "import __main__; found = __main__.__doc__, __main__.__file__",
    }
    trying = "scope = globals()\nfor name, source in cases.items():\n"
    trying += " try:\n  exec(source, scope); outcome = repr(scope.get('found'))\n"
    trying += (
        " except BaseException as error: outcome = type(error).__name__\n print(name, outcome, sep=': ')\n"
    )
    ran = await box.run(Program(trying, bindings={"cases": cases}), Limits())
    assert (ran.status, ran.stderr) == (Status.OK, "")
    expected = {"files": "[]", "folder": "True", "descriptor": "OSError", "script": "(None, '<program>')"}
    assert outcomes(ran) | expected == outcomes(ran)
    assert "printed" not in ran.stdout


async def test_many_programs_at_once_keep_what_was_prepared(box):
    source = "numbers[0] = n\nTable.rows.append(n)\nprint(len(Table.rows), numbers[0] == n, numbers[1])"
    programs = [Program(source, bindings={"n": n}) for n in range(20)]
    ran = await asyncio.gather(*(box.run(one, Limits()) for one in programs))
    assert {one.stdout for one in ran} == {"3 True 1.0\n"}


async def test_bindings_come_before_prepared_names_and_files_of_programs_are_theirs(box):
    files = {"helper.py": b"state = 'own'\n", "table.csv": b"own"}
    source = "import helper, own\nprint(Table, helper.state, own.x, open('table.csv').read())"
    program = Program(source, bindings={"Table": 5}, files={**files, "own.py": b"x = 3\n"})
    assert (await box.run(program, Limits())).stdout == "5 {'n': 1} 3 own\n"


async def test_programs_have_their_limits_beside_what_was_prepared(box, place):
    ran = await box.run(Program("bytearray(200 << 20)"), Limits(memory_bytes=64 << 20))
    assert (ran.status, ran.stderr.splitlines()[-1]) == (Status.ERROR, "MemoryError")
    ran = await box.run(Program("print(len(bytearray(32 << 20)))"), Limits(memory_bytes=64 << 20))
    assert ran.stdout == f"{32 << 20}\n"
    if place not in READ_ONLY:
        ran = await box.run(Program("open('x', 'wb').write(bytes(9 << 20))"), Limits(disk_bytes=8 << 20))
        assert ran.status is not Status.OK
