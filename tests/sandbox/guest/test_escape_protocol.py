"""Attacks on a program's own result: the reported end is the kernel's, and the same as plain CPython's."""

from __future__ import annotations

import asyncio
import functools
import signal
import subprocess
import sys

import pytest

from tests.rows import each_row
from tests.sandbox.targets import TRYING, last_line, outcomes
from tirjudge_sandbox import Program, Status
from tirjudge_sandbox.local import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


@functools.cache
def plainly(source: str, stdin: str) -> tuple[int, str]:
    """Return exit code (or minus the signal) and standard output of a bare interpreter without buffers."""
    command = [sys.executable, "-I", "-u", "-X", "utf8", "-c", source]
    done = subprocess.run(command, input=stdin.encode(), capture_output=True, check=False)
    return done.returncode, done.stdout.decode("utf-8", "replace")


def ending(execution) -> tuple[int | None, str]:
    code = execution.exit_code if execution.signal is None else -execution.signal
    return code, execution.stdout


ENDINGS = {
    "exit 0": "raise SystemExit(0)",
    "exit 1": "raise SystemExit(1)",
    "exit 255": "raise SystemExit(255)",
    "exit 256": "raise SystemExit(256)",
    "exit -1": "raise SystemExit(-1)",
    "exit by a text": "raise SystemExit('text')",
    "exit by a bool": "raise SystemExit(True)",
    "exit by a float": "raise SystemExit(0.0)",
    "exit by a list": "raise SystemExit([])",
    "exit by two": "raise SystemExit(1, 2)",
    "exit by a signal's number": "raise SystemExit(137)",
    "exit in a finally": "try: 1 / 0\nfinally: raise SystemExit(4)",
    "exit in a generator": "def f():\n  yield\n  raise SystemExit(5)\nlist(f())",
    "exit in del": "class A:\n  def __del__(self): raise SystemExit(6)\nA()\nprint('on')",
    "exit at exit": "import atexit, sys\natexit.register(sys.exit, 7)",
    "at once": "import os\nprint('said')\nos._exit(8)",
    "at once, flushed": "import os\nprint('kept', flush=True)\nos._exit(9)",
    "at once, at exit": "import atexit, os\nprint('said')\natexit.register(os._exit, 10)",
    "abort": "import os\nprint('said')\nos.abort()",
    "abort by the C library": "import ctypes\nctypes.CDLL(None).abort()",
    "exit by the C library": "import ctypes\nctypes.CDLL(None).exit(11)",
    "a null pointer": "import ctypes\nctypes.string_at(0)",
    "interrupt": "print('kept')\nraise KeyboardInterrupt",
    "interrupt by signal": "import os\nprint('kept')\nos.kill(os.getpid(), 2)",
    "interrupt, ignored": "import signal\nsignal.signal(2, signal.SIG_IGN)\nraise KeyboardInterrupt",
    "interrupt, hooked": "import sys\nsys.excepthook = lambda *a: print('mine')\nraise KeyboardInterrupt",
    "a kind of interrupt": "class A(KeyboardInterrupt): pass\nraise A",
    "a broken pipe": "import os\na, b = os.pipe()\nos.close(a)\nos.write(b, b'x')",
    "an alarm": "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, .01)\ntime.sleep(9)",
    "closed output": "import os\nos.close(1)\nprint('said')",
    "closed output, exit": "import os\nos.close(1)\nprint('said')\nraise SystemExit(12)",
    "closed output, error": "import os\nos.close(1)\nprint('said')\n1 / 0",
    "closed errors": "import os\nos.close(2)\n1 / 0",
    "closed everything": "import os\nos.closerange(0, 99)\n1 / 0",
    "closed input": "import os\nos.close(0)\nprint('on')\ninput()",
    "closed streams": "import sys\nsys.stdin.close()\nsys.stdout.close()\nsys.stderr.close()",
    "no streams": "import sys\nsys.stdout = sys.stderr = None\nprint('said')\n1 / 0",
    "streams of another kind": "import sys\nsys.stdout = sys.stderr = object()\n1 / 0",
    "detached output": "import sys\nsys.stdout.detach()",
    "output of its own": "import os\nos.write(1, b'a')\nprint('b')\nos.write(1, b'c')",
    "no UTF-8": "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\xc3(\\xed\\xa0\\x80')",
    "a cut character": "import os\nos.write(1, '\u20ac'.encode()[:2])",
    "a surrogate": "print('\\ud800')",
    "a nul": "print('a\\0b')",
    "many lines": "print('\\n'.join(map(str, range(10000))))",
    "text without an end": "print('text', end='')",
    "input": "import sys\nprint(sys.stdin.read())",
    "input by lines": "print(input() + input())\ninput()",
    "input by bytes": "import os\nprint(os.read(0, 3))",
    "input, twice": "import sys\nprint(sys.stdin.readline(), sys.stdin.buffer.read())",
    "a stack that is gone": "import sys\nsys.setrecursionlimit(10 ** 9)\n"
    "def f(_): return sorted([0], key=f)\nf(0)",
    "no errors, exit by a text": "import sys\nprint('kept')\nsys.stderr = None\nsys.exit('text')",
    "no hook, output": "import sys\nprint('kept')\ndel sys.excepthook\n1 / 0",
    "no builtins": "import builtins\nvars(builtins).clear()\nnothing",
    "no builtins, exit": "import builtins, sys\nvars(builtins).clear()\nsys.exit(13)",
    "no modules": "import sys\nsys.modules.clear()\n1 / 0",
    "no main module": "import sys\ndel sys.modules['__main__']",
    "patched exits": "import os, sys\nos._exit = os.kill = sys.exit = print\nraise SystemExit(14)",
    "patched hook": "import sys\nsys.excepthook = lambda *a: sys.exit(0)\n1 / 0",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0",
    "an error without words": "class A(Exception):\n  def __str__(self): 1 / 0\nraise A",
    "an error of no class": "raise BaseException",
    "an error of an error": "try: 1 / 0\nexcept Exception as e: raise e from e",
}  # fmt: skip


@each_row("name", ENDINGS)
async def test_an_ending_is_as_cpython_gives_it(attack, name):
    stdin = "one\n\u00e9two\n\nthree"
    execution = await attack(ENDINGS[name], stdin=stdin)
    assert ending(execution) == await asyncio.to_thread(plainly, ENDINGS[name], stdin), execution.stderr
    assert execution.status is {None: Status.SIGNAL, 0: Status.OK}.get(execution.exit_code, Status.ERROR)


FATAL = sorted(
    set(signal.valid_signals())
    - {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP}
    - {signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT}
)


async def test_a_signal_that_the_host_ignores_still_ends_a_program():
    """These are two signals that a shell makes its background jobs ignore."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        async with LocalSandbox(preload=()) as box:
            execution = await box.run(Program(source="import os; os.kill(os.getpid(), 3)"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (execution.status, execution.signal) == (Status.SIGNAL, signal.SIGQUIT)


@each_row("number", [*FATAL[:25], FATAL[-1]])
async def test_a_signal_to_itself_is_as_the_kernel_gives_it(attack, number):
    execution = await attack(f"import os; os.kill(os.getpid(), {int(number)})")
    assert (execution.status, execution.signal, execution.exit_code) == (Status.SIGNAL, number, None)


async def test_signals_that_mean_nothing(attack):
    names = ("SIGCHLD", "SIGURG", "SIGWINCH", "SIGCONT", "SIGPIPE", "SIGXFSZ")
    cases = {name: f"import os, signal; os.kill(os.getpid(), signal.{name})" for name in names}
    assert outcomes(await attack(TRYING, cases=cases)) == dict.fromkeys(names, "None")


FEIGNED = {
    "a wall limit": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Status.SIGNAL),
    "a CPU limit": ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", Status.SIGNAL),
    "a CPU limit of its own": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nwhile True: pass",
        Status.SIGNAL,
    ),
    "a memory limit": ("raise MemoryError", Status.ERROR),
    "an output limit": ("print('output limit reached')", Status.OK),
    "a broken sandbox": ("print('sandbox_failed'); raise SystemExit(125)", Status.ERROR),
    "success": ("import os; print('ok'); os.kill(os.getpid(), 15)", Status.SIGNAL),
    "success after an error": ("import sys; sys.excepthook = lambda *a: None\n1 / 0", Status.ERROR),
}


@each_row("name", FEIGNED)
async def test_a_status_cannot_be_feigned(attack, name):
    source, status = FEIGNED[name]
    execution = await attack(source, cpu_seconds=5)
    assert (execution.status, execution.truncated) == (status, False)


async def test_a_report_of_its_own(attack):
    """A report forged in the supervisor's form, and sent to every descriptor, changes no result."""
    source = """
    import os, socket
    report = (b'{"killed_for": null, "wait_status": 0, "wall_seconds": 0.0, "cpu_seconds": 0.0,'
              b' "max_rss_bytes": 0}')
    for descriptor in range(1024):
        for way in (os.write, lambda number, what: socket.socket(fileno=os.dup(number)).send(what)):
            try:
                way(descriptor, report)
            except OSError:
                pass
    os._exit(3)
    """
    execution = await attack(source)
    assert (execution.status, execution.exit_code) == (Status.ERROR, 3)
    assert execution.max_rss_bytes > 0


async def test_our_own_exit_patched_through_the_frames(attack):
    source = """
    import sys
    frame = sys._getframe()
    while frame:
        for name in ('_exit', '_kill', '_finish', '_exit_code'):
            frame.f_globals[name] = lambda *a: 0
        frame = frame.f_back
    sys.exit(3)
    """
    execution = await attack(source, cpu_seconds=0.3)
    assert execution.status in (Status.CPU_LIMIT, Status.ERROR)


async def test_the_supervisors_loop_reached_through_the_frames(attack):
    """No frame below the program may continue after it, since that code would act as the supervisor."""
    source = """
    import sys
    frame = sys._getframe().f_back
    while frame:
        frame.f_trace_opcodes = True
        frame.f_trace = lambda *a: None
        print(sorted(name for name in frame.f_locals if 'control' in name), file=sys.stderr)
        frame = frame.f_back
    raise SystemExit(3)
    """
    assert (await attack(source)).exit_code == 3


async def test_bindings_are_values_and_no_source(attack):
    bindings = {"given": "'); import os; os._exit(9); ('", "__name__": "x", "print": 1}
    execution = await attack("__builtins__.print(given)", bindings=bindings)
    assert execution.stdout in ("'); import os; os._exit(9); ('\n", "")
    assert execution.exit_code in (0, 1)


async def test_a_file_named_like_a_module_of_the_sandbox(attack):
    """The working folder comes first in the search path of the program, and only there."""
    files = {f"{name}.py": b"raise SystemExit(9)" for name in ("json", "scratch", "tirjudge_sandbox")}
    execution = await attack("print('on')", files=files, fetch=("json.py",))
    assert execution.stdout == "on\n"
    assert execution.files == {"json.py": b"raise SystemExit(9)"}


async def test_a_traceback_shows_nothing_of_ours(attack):
    execution = await attack("import sys\ndef f(): raise ValueError('x')\ntry: f()\nfinally: 1 / 0")
    assert "guest" not in execution.stderr
    assert last_line(execution) == "ZeroDivisionError: division by zero"
