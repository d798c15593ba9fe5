"""The prepared program: the operator's code, which a supervisor runs once before it forks for programs.

It runs in the supervisor itself, after everything that isolates the supervisor and before the limits of
programs, so that every program finds its names, modules and data copy-on-write. The operator must trust it,
since it shares the supervisor's memory and could change the reports of programs. It sees none of the host's
files but those that came with it, and has no network. Whatever would let one program change what the next
one finds is refused (shared memory, processes) or reset (handlers of signals, timers, the working folder);
open files are closed in every program. A thread of Python, which a fork does not copy, is refused too;
libraries that have threads of their own must survive a fork, as Arrow and OpenBLAS do.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import threading
import types
from itertools import accumulate

from tirjudge_sandbox.guest import program, scratch
from tirjudge_sandbox.guest.memory import Mapped
from tirjudge_sandbox.guest.wire import Payload

FILE = "<prepared>"
_LONGEST = 1000
"""Bytes of a reason in JSON, which must fit into a record."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class PreparedFailed(Exception):
    """The prepared program failed; the message is one line."""


def prepare(payload: int, most_bytes: int, mapped: Mapped, folder: str) -> types.ModuleType:
    """Run the prepared program in the working folder `folder`, empty that, and return its module `__main__`.

    `payload`: a descriptor, which is closed before the program runs. `most_bytes`: address space beyond what
    is mapped now. Raises PreparedFailed. What it prints is dropped.
    """
    streams, umask = (sys.stdin, sys.stdout, sys.stderr), os.umask(0o077)
    with open(os.devnull, "r+b") as null:
        for standard in (0, 1, 2):
            os.dup2(null.fileno(), standard)
    content = Payload.read(payload)
    program.seed_generators(content.seed)
    # Its own modules are beside it.
    sys.path.insert(0, folder)
    sys.argv = [FILE]
    main = program.main_module(FILE)
    main.__dict__.update(json.loads(content.bindings))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = mapped.address_space + most_bytes
    resource.setrlimit(resource.RLIMIT_AS, (bound if most < 0 else min(bound, most), most))
    try:
        scratch.lay(content.files, payload)
        os.close(payload)
        exec(program.compiled(content.source, FILE), main.__dict__)
    except MemoryError:
        raise PreparedFailed(
            f"it needs more than {most_bytes / 2**20:.0f} MiB: raise prepare_memory_bytes"
        ) from None
    except SystemExit as error:
        if error.code not in (None, 0):
            code = _one_line(str(error.code))
            raise PreparedFailed(f"{_place(error)}it ended with exit code {code}") from None
    except BaseException as error:
        raise PreparedFailed(_reason(error)) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    _refuse_what_is_shared(mapped)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    sys.stdin, sys.stdout, sys.stderr = streams
    with contextlib.suppress(ValueError):
        sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    importlib.invalidate_caches()
    os.umask(umask)
    os.chdir(folder)
    scratch.wipe(folder)
    _reset_signals()
    main.__doc__ = None
    main.__dict__.pop("__annotations__", None)
    return main


def _refuse_what_is_shared(mapped: Mapped) -> None:
    """Raise PreparedFailed for what a fork does not copy, so that programs would lack or share it."""
    if others := [one.name for one in threading.enumerate() if one is not threading.main_thread()]:
        name = _one_line(repr(others[0]))
        raise PreparedFailed(f"it left the thread {name} running, which no program would have: end it")
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        raise PreparedFailed("it left a process running, which all programs would share: end it")
    if mapped.is_shared():
        raise PreparedFailed(
            "it left memory that all programs would share (mmap, multiprocessing.shared_memory): copy it, or "
            "map a file with ACCESS_COPY or ACCESS_READ"
        )


def _reset_signals() -> None:
    """Remove handlers and timers, with which programs could reach the supervisor."""
    for timer in _TIMERS:
        signal.setitimer(timer, 0)
    signal.set_wakeup_fd(-1)
    program.default_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _reason(error: BaseException) -> str:
    advice = ""
    if isinstance(error, FileNotFoundError | PermissionError):
        advice = " (it finds the files of its own folder, if the folder is given, and no others)"
    return _place(error) + _one_line(f"{type(error).__name__}: {str(error).strip()}") + advice


def _one_line(text: str) -> str:
    """Return the first line of a text, cut to `_LONGEST` bytes in JSON."""
    marks = [
        mark if mark.isprintable() else " " for mark in next(iter(text.strip().splitlines()), "")[:_LONGEST]
    ]
    sizes = accumulate(len(json.dumps(mark)) - 2 for mark in marks)
    return "".join(mark for mark, size in zip(marks, sizes, strict=True) if size <= _LONGEST)


def _place(error: BaseException) -> str:
    """Return the last line of the prepared program that an exception passed, as `line 3: `."""
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return f"line {error.lineno}: "
    numbers, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            numbers.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"line {numbers[-1]}: " if numbers else ""
