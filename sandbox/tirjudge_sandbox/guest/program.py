"""The forked child of the supervisor, which becomes the program and never returns."""

from __future__ import annotations

import _signal
import atexit
import builtins
import contextlib
import errno
import functools
import gc
import io
import json
import linecache
import os
import random
import resource
import signal
import stat
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tirjudge_sandbox.guest import scratch
from tirjudge_sandbox.guest.import_policy import Check
from tirjudge_sandbox.guest.wire import Job, Payload

# The functions below look up built-ins in this copy. Without it, a program that empties the original would
# break the handling of its own error, and end with exit code 0.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

FILE = "<program>"
_NAME = "__main__"

_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2} | {
    f"{folder}/{number}": number for folder in ("/dev/fd", "/proc/self/fd") for number in range(3)
}

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

_INTERRUPTED = -signal.SIGINT
"""Stands for an end by SIGINT: CPython ends this way after an uncaught KeyboardInterrupt."""

_MOST_FRAMES = 1000
"""Frames of a traceback that CPython prints, the innermost ones: an endless recursion may have a million."""

_exit, _kill, _getpid = os._exit, os.kill, os.getpid


@dataclass(frozen=True)
class Place:
    """The surroundings of a program, which the supervisor knows."""

    base_bytes: int
    """Address space that the supervisor maps, in addition to what a job allows."""
    most_processes: int
    """Most processes that may exist under this uid."""
    confine: Callable[[], None]
    """Called when the files are in place; drops the last rights. Raises OSError."""
    unlaid: Callable[[OSError], NoReturn]
    """Called when the files cannot be put in place, which is no failure of the program."""
    check: Check | None
    """The import policy's check of the source, None without a policy."""
    main: types.ModuleType | None
    """The module of the prepared program, in which the program goes on; None without one."""


def become(job: Job, descriptors: Sequence[int], place: Place) -> NoReturn:
    """Run the payload as `__main__`, and end this process as CPython would end."""
    code = 1
    try:
        code = _execute(job, descriptors, place)
        code = _finish(code)
        if code == _INTERRUPTED:
            _signal.signal(signal.SIGINT, _signal.SIG_DFL)
            _kill(_getpid(), signal.SIGINT)
            # Reached only if the program has blocked the signal.
            code = 128 + signal.SIGINT
    finally:
        _exit(code)
        # Only reached if the program replaced this module's copy of _exit.
        while True:
            _kill(_getpid(), signal.SIGKILL)


def _prepare(job: Job, descriptors: Sequence[int], place: Place) -> Payload:
    # A session is an autogroup of the scheduler, and the kernel divides the CPUs fairly between autogroups.
    os.setsid()
    payload, stdin, stdout, stderr = descriptors[:4]
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
    # Before the limits are set: a limit on descriptors closes none that are open.
    end = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    seconds = int(job.cpu_seconds) + 1
    address_space = place.base_bytes + job.memory_bytes
    for kind, soft, hard in (
        # A backup, since the supervisor watches the exact CPU clock.
        (resource.RLIMIT_CPU, seconds + 1, seconds + 2),
        (resource.RLIMIT_AS, address_space, address_space),
        (resource.RLIMIT_FSIZE, job.disk_bytes, job.disk_bytes),
        (resource.RLIMIT_NPROC, place.most_processes, place.most_processes),
    ):
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))
    content = Payload.read(payload)
    try:
        scratch.lay(content.files, payload)
    except OSError as error:
        place.unlaid(error)
    os.closerange(3, end)
    # The supervisor has no handler. `_signal` directly, since the wrapper in `signal` is ten times slower.
    _signal.signal(signal.SIGINT, signal.default_int_handler)
    seed_generators(content.seed)
    place.confine()
    return content


def seed_generators(seed: int) -> None:
    """Seed `random` and, where it is loaded, numpy."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        # numpy takes 32 bits, and the seed of a program may have more.
        numpy.random.seed(seed % 2**32)


def default_signals() -> None:
    """Give every signal the action that it has when Python starts, but no handler of Python.

    The host may ignore some, as a background job or under nohup, and a prepared program may handle some.
    """
    for number in signal.valid_signals():
        # Without a handler, also of SIGINT, the kernel discards signals that programs send to PID 1.
        with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no other action
            signal.signal(number, signal.SIG_IGN if number in _IGNORED_BY_PYTHON else signal.SIG_DFL)


class ThreadLock:
    """Stands for `_multiprocessing.SemLock`, with its methods, where semaphores of processes cannot be made.

    They would lie in a file of /dev/shm. Pools of threads make some too, for which this is as good. It is of
    no use to a further process, which gets an OSError.
    """

    SEM_VALUE_MAX = 2**31 - 1
    name, handle = None, 0
    _RECURSIVE = 0

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool):
        self.kind, self.maxvalue = kind, maxvalue
        self._left = threading.Semaphore(value)
        self._held, self._holder, self._process = 0, 0, _getpid()

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        self._check_process()
        recursive = self.kind == self._RECURSIVE and self._is_mine()
        if not recursive and not self._left.acquire(
            block, max(0.0, timeout) if block and timeout is not None else None
        ):
            return False
        self._held, self._holder = self._held + 1, threading.get_ident()
        return True

    def release(self) -> None:
        self._check_process()
        if self.kind == self._RECURSIVE and not self._is_mine():
            raise AssertionError("attempt to release recursive lock not owned by thread")
        if self._get_value() >= self.maxvalue:
            raise ValueError("semaphore or lock released too many times")
        self._held -= 1
        if self.kind != self._RECURSIVE or not self._held:
            self._left.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._holder == threading.get_ident()

    def _get_value(self) -> int:
        return self._left._value

    def _is_zero(self) -> bool:
        return self._get_value() == 0

    def _after_fork(self) -> None:
        self._held = 0

    def _check_process(self) -> None:
        if _getpid() != self._process:
            raise OSError(errno.ENOSYS, "processes cannot share a semaphore here")


def _execute(job: Job, descriptors: Sequence[int], place: Place) -> int:
    try:
        payload = _prepare(job, descriptors, place)
        if place.check and (refusal := place.check(payload.source, payload.files)):
            print(refusal, file=sys.stderr)
            return 1
        namespace = _main_module(payload, place.main)
        exec(compiled(payload.source, FILE), namespace)
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:
        return _shown(error)
    return 0


def _main_module(payload: Payload, main: types.ModuleType | None) -> dict[str, Any]:
    main = main_module(FILE) if main is None else main
    main.__dict__.update(__file__=FILE)
    main.__dict__.update(json.loads(payload.bindings))
    sys.argv = [FILE]
    sys.path.insert(0, os.getcwd())
    # Only for programs that may need it, since it replaces a built-in function by one of Python.
    if any(path.encode() in payload.source or path in payload.bindings for path in _STREAMS):
        _open_streams_by_name()
    return main.__dict__


def main_module(file: str) -> types.ModuleType:
    """Return a new module `__main__`."""
    main = types.ModuleType(_NAME)
    # Otherwise `exec` would give the program the copy of the built-ins that this module uses.
    main.__dict__.update(__builtins__=builtins, __file__=file)
    sys.modules[_NAME] = main
    return main


def _open_streams_by_name() -> None:
    """Let `open` find the standard streams under their names, which lead to /proc or to pipes of the host."""
    by_path = io.open

    @functools.wraps(by_path)
    def open(file: Any, *arguments: Any, **options: Any) -> Any:
        path = file if isinstance(file, int) else os.fsdecode(file)
        return by_path(os.dup(_STREAMS[path]) if path in _STREAMS else file, *arguments, **options)

    builtins.open = io.open = open


def compiled(source: bytes, file: str) -> types.CodeType:
    """Compile a program, whose lines tracebacks then show. Raises SyntaxError for any bad source."""
    _remember_lines(source, file)
    try:
        return compile(source, file, "exec", dont_inherit=True)
    except ValueError as error:
        # Older interpreters raise ValueError for a NUL in the source.
        raise SyntaxError(str(error)) from None


def _remember_lines(source: bytes, file: str) -> None:
    """Let tracebacks and `inspect` show lines of the source, which is in no file."""
    # Not splitlines, which ends lines at characters that end none in Python, such as a form feed.
    text = io.StringIO(source.decode("utf-8", "replace").removeprefix("\ufeff"), newline=None)
    lines = text.readlines()
    linecache.cache[file] = (len(source), None, lines, file)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    # Not print, which would take standard output where there is no `sys.stderr`.
    _quietly(lambda: sys.stderr.write(f"{error.code}\n"))
    return 1


def _shown(error: BaseException) -> int:
    """Report an uncaught exception through the program's `sys.excepthook`; return the exit code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    error.__traceback__ = trace
    if trace is not None:
        _drop_own_frames(trace)
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    if hook is sys.__excepthook__:
        # The built-in hook reads source lines only from disk.
        hook = _print_traceback
    try:
        hook(type(error), error, trace)
    except SystemExit as instead:
        return _exit_code(instead)
    except BaseException:
        _quietly(lambda: sys.__excepthook__(type(error), error, trace))
    return _INTERRUPTED if type(error) is KeyboardInterrupt else 1


def _drop_own_frames(trace: types.TracebackType) -> None:
    """Drop the frames of this module within a traceback, which are those of its `open`."""
    while trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_globals is globals():
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: types.TracebackType | None
) -> None:
    # As CPython does, whose limit the program may have changed.
    limit = None if hasattr(sys, "tracebacklimit") else -_MOST_FRAMES
    sys.stderr.write("".join(traceback.format_exception(kind, error, trace, limit=limit)))


def _finish(code: int) -> int:
    """Finalize like `Py_FinalizeEx`, as far as a program can observe, without dismantling the interpreter."""
    _quietly(threading._shutdown)  # type: ignore[attr-defined]
    _quietly(atexit._run_exitfuncs)
    # CPython ends with exit code 120 if the standard streams cannot be flushed.
    flushed = _flush()
    if threading.active_count() > 1:
        # Daemon threads, which CPython would stop here: what they use must not be taken from under them.
        _quietly(_flush_files)
        return code if flushed else 120
    _quietly(lambda: _clear(sys.modules[_NAME].__dict__))
    _quietly(gc.collect)
    _quietly(_flush_files)
    _flush()
    return code if flushed else 120


def _flush() -> bool:
    done = [_quietly(_flush_open, stream) for stream in (sys.stdout, sys.stderr, sys.__stdout__)]
    return all(done)


def _flush_files() -> None:
    """Flush the files that are still open, which CPython closes when it takes all modules away."""
    for one in gc.get_objects():
        if isinstance(one, io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom):
            _quietly(_flush_file, one)


def _flush_file(stream: io.TextIOWrapper | io.BufferedWriter | io.BufferedRandom) -> None:
    # Only of files, which take everything at once: a thread may wait for the reader of a pipe, with the lock.
    if not stream.closed and stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.flush()


def _clear(namespace: dict[str, Any]) -> None:
    """Drop a module's values in CPython's order, so that files are flushed and `__del__` is called."""
    for hidden in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) is hidden:
                namespace[name] = None


def _flush_open(stream: Any) -> None:
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()


def _quietly(action: Callable[..., object], *arguments: object) -> bool:
    try:
        action(*arguments)
    except BaseException:
        return False
    return True
