"""Attacks on time and output: programs that do not end and resist being ended."""

from __future__ import annotations

import pytest

from tests.rows import each_row
from tests.sandbox.targets import last_line
from tirjudge_sandbox import Status

pytestmark = pytest.mark.asyncio(loop_scope="module")


OUTPUT = {
    "lines": "while True: print('x' * 999)",
    "errors": "import sys\nwhile True: print('x' * 999, file=sys.stderr)",
    "bytes": "import os\nwhile True: os.write(1, b'x')",
    "packets": """
        import fcntl, os
        fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT | os.O_WRONLY)
        while True: os.write(1, b'x')
    """,
    "one line": "print('x' * 1_000_000)",
    "without waiting": """
        import os
        os.set_blocking(2, False)
        while True:
            try: os.write(2, bytes(99_999))
            except BlockingIOError: pass
    """,
    "from a file": """
        import os
        file = open(os.__file__)
        while True: os.sendfile(1, file.fileno(), 0, 9999)
    """,
    "at exit": """
        import atexit
        @atexit.register
        def last():
            while True: print('x' * 999)
    """,
    "warnings": """
        import warnings
        warnings.simplefilter('always')
        while True: warnings.warn('x' * 999)
    """,
    "a message": "raise ValueError('x' * 1_000_000)",
    "exit": "import sys; sys.exit('x' * 1_000_000)",
}


@each_row("name", OUTPUT)
async def test_output_without_end(attack, name):
    execution = await attack(OUTPUT[name], output_bytes=20_000)
    assert (execution.status, execution.truncated) == (Status.OUTPUT_LIMIT, True)
    assert len(execution.stdout) + len(execution.stderr) == 20_000


SPINNING = {
    "plainly": "while True: pass",
    "in one call": "sum(range(10 ** 12))",
    "over a large number": "10 ** 10 ** 8",
    "over a regular expression": "import re; re.match('(a+)+$', 'a' * 99 + 'b')",
    "over one slot of a dictionary": "{n * (2 ** 61 - 1): 0 for n in range(10 ** 6)}",
    "over calls that double": "def f(n): return f(n - 1) + f(n - 1) if n else 0\nf(99)",
    "with SIGXCPU ignored": """
        import signal
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True: pass
    """,
    "with all signals ignored": """
        import signal
        for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        while True: pass
    """,
    "with all signals blocked": """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True: pass
    """,
    "with all exceptions caught": """
        while True:
            try:
                while True: pass
            except BaseException: pass
    """,
    "without a way out": """
        import sys
        while True:
            try: sys.exit()
            finally: continue
    """,
    "at exit": """
        import atexit
        @atexit.register
        def last():
            while True: pass
    """,
    "when it is deleted": """
        class A:
            def __del__(self):
                while True: pass
        kept = A()
    """,
    "in the hook for exceptions": """
        import sys
        def hook(*_):
            while True: pass
        sys.excepthook = hook
        1 / 0
    """,
    "when it is flushed": """
        import sys
        class Stream:
            closed = False
            def flush(self):
                while True: pass
        sys.stdout = Stream()
    """,
    "when it is cleared": """
        import sys, types
        class Module(types.ModuleType):
            def __getattribute__(self, name):
                while True: pass
        sys.modules['__main__'] = Module('x')
    """,
    "with our exit patched": """
        import sys
        frame = sys._getframe()
        while frame:
            frame.f_globals.update(_exit=lambda *_: None, _kill=lambda *_: None)
            frame = frame.f_back
    """,
    "under a storm of alarms": """
        import signal
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
        while True: pass
    """,
}


@each_row("name", SPINNING)
async def test_spinning(attack, name):
    execution = await attack(SPINNING[name], cpu_seconds=0.1, wall_seconds=10)
    assert execution.status is Status.CPU_LIMIT
    assert execution.cpu_seconds < 2


WAITING = {
    "asleep": "import time; time.sleep(60)",
    "asleep behind ignored signals": """
        import signal, time
        for number in (signal.SIGTERM, signal.SIGXCPU, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(60)
    """,
    "for a pipe": "import os; os.read(os.pipe()[0], 1)",
    "for a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "for a signal": "import signal; signal.sigwait({1})",
    "at exit": "import atexit, time; atexit.register(time.sleep, 60)",
    "when it is deleted": """
        import time
        class A:
            def __del__(self, sleep=time.sleep): sleep(60)
        kept = A()
    """,
    "in a loop of events": "import asyncio; asyncio.run(asyncio.sleep(60))",
}


@each_row("name", WAITING)
async def test_waiting(attack, name):
    execution = await attack(WAITING[name], wall_seconds=0.1)
    assert execution.status is Status.WALL_LIMIT


@each_row("name", ["SIGSTOP", "SIGTSTP", "SIGTTIN"])
async def test_stopping_itself(attack, name):
    source = f"import os, signal, time; os.kill(os.getpid(), signal.{name}); time.sleep(60)"
    execution = await attack(source, wall_seconds=0.1)
    # In placements where a program may send no signals at all, the attempt is an error.
    assert execution.status is Status.WALL_LIMIT or last_line(execution).startswith("PermissionError")
