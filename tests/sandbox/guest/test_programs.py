"""Programs behave as under plain CPython."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tirjudge_sandbox import Limits, Program, Status
from tirjudge_sandbox.base import validate
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.local import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


ENDINGS = {
    "uncaught": "1/0",
    "chained": "try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('second') from e",
    "group": "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
    "deep": "def f(n): return f(n + 1)\nf(0)",
    "syntax": "x = 1\nif x\n  print(x)",
    "indentation": "if 1:\nprint()",
    "atexit after error": "import atexit; atexit.register(print, 'last'); 1/0",
    "end of input": "input(); input(); input()",
    "stdin lines": "import sys; print([line for line in sys.stdin])",
    "stdin bytes": "import sys; print(sys.stdin.buffer.read())",
    "unicode": "print('\u00e9\u4e16\U0001f600')",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n  x: int\nprint(A(1), __name__)",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))",
    "asyncio": "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))",
    "wrapped stdout": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('wrapped')",
    "unusual line ends": "x = '\u2028 \x85 \x1c'\n\x0c\ndef f():\n  1/0\nf()",
    "bytes literal": "print(b'\\xff')",
    "warning": "import warnings; warnings.warn('careful', stacklevel=1)",
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_a_program_gives_the_same_result_as_a_fresh_interpreter(run, tmp_path, name):
    source, stdin = ENDINGS[name], "one\ntwo\n"
    file = tmp_path / "program.py"
    file.write_text(source, encoding="utf-8")
    beside = await asyncio.to_thread(_plainly, file, stdin)
    execution = await run(source, stdin=stdin)
    assert execution.exit_code == beside.returncode
    assert execution.stdout == beside.stdout
    if name == "deep":
        return
    assert _without_carets(execution.stderr) == _without_carets(beside.stderr.replace(str(file), "<program>"))


def _plainly(file: Path, stdin: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-X", "utf8", str(file)]
    return subprocess.run(command, input=stdin, capture_output=True, encoding="utf-8", check=False)


def _without_carets(text: str) -> list[str]:
    """Drop caret lines, which differ between CPython versions and between 3.11's two traceback printers."""
    return [line for line in text.splitlines() if line.strip(" ^~")]


@pytest.mark.parametrize(
    "source",
    [
        "print(open('/dev/stdin').read())",
        "import pathlib; print(pathlib.Path('/dev/stdin').read_text())",
        "with open('/dev/stdin', 'rb') as f: print(f.read().decode())",
        "exec(\"print(open('/dev/fd/0').read())\")",
        "open('/dev/stdout', 'w').write('one\\ntwo\\n\\n')",
    ],
)
async def test_standard_streams_have_their_names(run, source):
    execution = await run(source, stdin="one\ntwo\n")
    assert (execution.status, execution.stdout) == (Status.OK, "one\ntwo\n\n"), execution.stderr


async def test_a_traceback_shows_no_frame_of_the_named_streams(run):
    execution = await run("name = '/dev/stdin'\nopen(name + '2')")
    files = [line for line in execution.stderr.splitlines() if line.startswith("  File ")]
    assert files == ['  File "<program>", line 2, in <module>']


async def test_programs_have_a_user_with_a_name(run):
    assert (await run("import getpass; print(getpass.getuser())")).stdout == "sandbox\n"


async def test_threads_that_are_left_behind_do_not_spoil_the_end(run):
    """CPython stops daemon threads before it takes the module's names away."""
    source = """
import threading, time
def work():
    while True: len(kept)
class Slow:
    def __del__(self): time.sleep(0.2)
kept = [1]
slow = Slow()
for _ in range(4): threading.Thread(target=work, daemon=True).start()
print('done')
"""
    execution = await run(source)
    assert (execution.status, execution.stdout, execution.stderr) == (Status.OK, "done\n", "")


OPEN_FILES = {
    "a thread": "import threading, time\nfile = open('out', 'w')\nfile.write('text')\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "a module": "import helper",
    "a module and a thread": "import helper, threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
}


@pytest.mark.parametrize("holder", OPEN_FILES)
async def test_files_that_are_left_open_are_written_whole(run, holder):
    """CPython flushes them when it takes all modules away."""
    helper = b"file = open('out', 'w')\nfile.write('text')"
    execution = await run(OPEN_FILES[holder], files={"helper.py": helper}, fetch=("out",))
    assert (execution.status, execution.files) == (Status.OK, {"out": b"text"})


async def test_asyncio_and_pools_run_their_threads(run):
    source = """
import asyncio, concurrent.futures
async def main():
    return await asyncio.gather(*(asyncio.to_thread(pow, 2, n) for n in range(5)))
print(asyncio.run(main()))
with concurrent.futures.ThreadPoolExecutor() as pool:
    print(sum(pool.map(len, ["a", "bc"])))
"""
    assert (await run(source)).stdout == "[1, 2, 4, 8, 16]\n3\n"


SOURCES = {
    "byte order mark": ("\ufeffprint('fine')", "fine\n", 0),
    "lone surrogate": ("print('\ud800')", "SyntaxError", 1),
    "nul": ("print(1)\0", "SyntaxError", 1),
    "carriage returns": ("print(1)\r\nprint(2)\r\n", "1\n2\n", 0),
    "coding line": ("# coding: latin-1\nprint('a')", "a\n", 0),
    "unknown coding": ("# coding: nonsense\nprint('a')", "SyntaxError", 1),
    "empty": ("", "", 0),
    "ten megabytes": ("x = '" + "a" * 10_000_000 + "'\nprint(len(x))", "10000000\n", 0),
}


@pytest.mark.parametrize("name", SOURCES)
async def test_any_source_runs_or_is_a_syntax_error(run, name):
    source, expected, exit_code = SOURCES[name]
    execution = await run(source)
    assert execution.exit_code == exit_code
    if exit_code:
        assert execution.stderr.splitlines()[-1].startswith(expected)
    else:
        assert execution.stdout == expected


async def test_bindings_are_defined_before_the_first_line(run):
    bindings = {"text": "\ud800 \u00e9", "number": 1.5, "nested": {"list": [1, None, True]}}
    execution = await run("print(ascii(text), number, nested)", bindings=bindings)
    assert execution.stdout == "'\\ud800 \\xe9' 1.5 {'list': [1, None, True]}\n"


IMPOSSIBLE = {
    "a path twice": ({"a": b"", "./a": b""}, "clash"),
    "a file and a folder": ({"a": b"", "b": b"", "a/b/c": b""}, "clash"),
    "a name of 256 bytes": ({"folder/" + "é" * 128: b""}, "too long"),
    "a path of 4096 bytes": ({"aaa/" * 1023 + "aaaa": b""}, "too long"),
    "half a character": ({"\ud800": b""}, "half a character"),
    "4,096 files": ({str(number): b"" for number in range(4096)}, "files and their folders exceed"),
    "a page for each file": ({str(number): b"x" for number in range(257)}, "take 1052672 bytes"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_files_that_cannot_be_written_are_refused(run, name):
    """They would otherwise look like errors of the program."""
    files, words = IMPOSSIBLE[name]
    with pytest.raises(ValueError, match=words) as refused:
        await run("pass", files=files, disk_bytes=1 << 20 if "page" in name else 16 << 20)
    assert len(str(refused.value)) < 300


async def test_the_folders_of_long_paths_are_not_all_in_memory_before_they_are_counted():
    files = {f"{number:062}/{'/'.join(['n' * 62] * 63)}/f": b"" for number in range(4000)}
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="files and their folders exceed the 4096"):
            validate(Program("", files=files), Limits())
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


async def test_files_that_a_worker_cannot_write_are_no_error_of_the_program(monkeypatch):
    monkeypatch.setattr(WorkingFolder, "of", lambda *_: WorkingFolder(4 << 20))
    async with LocalSandbox(capacity=1, preload=()) as box:
        failed = await box.run(Program("print(1)", files={"a": bytes(8 << 20)}))
        assert (failed.status, failed.stdout, failed.stderr) == (Status.SANDBOX_FAILED, "", "")
        assert failed.detail == "the program's files could not be written: No space left on device"
        assert (await box.run(Program("print(2)"))).stdout == "2\n"


async def test_the_largest_possible_inputs_arrive(run):
    names = {"é" * 127 + "x": b"", "a/" * 64 + "b": b"", "full": bytes((16 << 20) - 4096), "x": b"x"}
    show = "import os; print(len(os.listdir()), os.path.isfile('a/' * 64 + 'b'), os.stat('full').st_size)"
    assert (await run(show, files=names)).stdout == f"4 True {(16 << 20) - 4096}\n"
    files = {str(number): b"" for number in range(4095)}
    assert (await run("import os; print(len(os.listdir()))", files=files)).stdout == "4095\n"
    nested: list[object] = []
    for _ in range(498):
        nested = [nested]
    depth = "depth = 0\nwhile nested:\n    nested, depth = nested[0], depth + 1\nprint(depth)"
    assert (await run(depth, bindings={"nested": nested})).stdout == "498\n"
    with pytest.raises(ValueError, match="500 levels"):
        await run(depth, bindings={"nested": [nested]})


@pytest.mark.slow
async def test_files_may_be_larger_than_the_memory_of_a_program(run):
    table = b"1,2\n" * (24 << 18)  # 24 MiB
    files = {"a/t.csv": table, "b/t.csv": table, "c/t.csv": b"0" + table}
    source = """
        for name in "abc":
            with open(f"{name}/t.csv") as rows:
                print(sum(1 for row in rows), end=" ")
        open("a/t.csv", "a").write("more")
        print(open("b/t.csv").read(4), [open(f"{name}/t.csv").seek(0, 2) for name in "abc"])
    """
    execution = await run(source, files=files, memory_bytes=64 << 20, disk_bytes=128 << 20, wall_seconds=100)
    lines, size = 24 << 18, 24 << 20
    assert execution.stdout == f"{lines} {lines} {lines} 1,2\n [{size + 4}, {size}, {size + 1}]\n"


async def test_a_repository_of_some_thousand_files_arrives(run):
    files = {f"src/{n % 200}/{n}.py": b"#" * (n % 7) for n in range(3000)}
    count = "import os; print(sum(os.path.getsize(f'{d}/{f}') for d, _, fs in os.walk('src') for f in fs))"
    execution = await run(count, files=files, disk_bytes=64 << 20, wall_seconds=100)
    assert execution.stdout == f"{sum(n % 7 for n in range(3000))}\n"


@pytest.mark.parametrize("name", ["wall_seconds", "cpu_seconds", "memory_bytes", "processes", "output_bytes"])
async def test_a_limit_beyond_what_the_machine_has_is_no_limit(run, name):
    execution = await run("print('ran')", **{name: 1 << 61})
    assert (execution.status, execution.stdout, execution.stderr) == (Status.OK, "ran\n", "")


@pytest.mark.parametrize("path", ["a/", "/etc/passwd", "../x", "a/../../x", "", ".", "a\0b"])
@pytest.mark.parametrize("field", ["files", "fetch"])
async def test_paths_that_leave_the_working_folder_are_refused(run, path, field):
    with pytest.raises(ValueError, match="working folder"):
        await run("pass", **{field: {path: b"x"} if field == "files" else (path,)})


@pytest.mark.parametrize(
    "name", ["wall_seconds", "cpu_seconds", "memory_bytes", "output_bytes", "disk_bytes"]
)
async def test_limits_must_be_positive_and_finite(run, name):
    for value in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=name):
            await run("pass", **{name: value})


async def test_asyncio_works_where_it_was_loaded_before_the_program():
    source = "import asyncio\nprint(type(asyncio.new_event_loop()._selector).__name__)\n"
    source += "async def f(): return await asyncio.to_thread(pow, 2, 5)\nprint(asyncio.run(f()))"
    async with LocalSandbox(capacity=1, preload=("asyncio",)) as box:
        assert (await box.run(Program(source=source))).stdout == "PollSelector\n32\n"


async def test_missing_preload_modules_are_skipped():
    async with LocalSandbox(capacity=1, preload=("no_such_module", "no_such.module", "fractions")) as box:
        ran = await box.run(Program(source="import sys; print('fractions' in sys.modules)"))
        assert ran.stdout == "True\n"


LOCKS = """
import multiprocessing, queue, threading
lock, nested, places = multiprocessing.Lock(), multiprocessing.RLock(), multiprocessing.BoundedSemaphore(2)
print(lock.acquire(), lock.acquire(False), lock.acquire(timeout=0.05), repr(lock))
print(nested.acquire(), nested.acquire(), repr(nested), places.acquire(timeout=-1), repr(places))
held = []
other = threading.Thread(target=lambda: held.append((nested.acquire(False), places.acquire(False))))
other.start(); other.join()
print(held)
for one in (lock, nested, nested, places, places):
    one.release()
for one in (lock, nested, places):
    try: one.release()
    except (AssertionError, ValueError) as error: print(type(error).__name__, error)
waiting = multiprocessing.Queue(1)
waiting.put('one')
try: waiting.put('two', timeout=0.05)
except queue.Full: print('full')
print(waiting.get(timeout=5))
woken = multiprocessing.Event()
other = threading.Thread(target=lambda: print(woken.wait(5)))
other.start(); woken.set(); other.join()
"""


async def test_locks_of_multiprocessing_are_those_of_python_among_threads(target, tmp_path):
    """Also where a program can make no semaphore of processes."""
    ran = await target.run(Program(source=LOCKS), Limits())
    file = tmp_path / "program.py"
    file.write_text(LOCKS)
    assert (ran.stderr, ran.stdout) == ("", _plainly(file, "").stdout)
