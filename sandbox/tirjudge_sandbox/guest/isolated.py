"""The module `isolated` of programs: run untrusted source as another program, which shares nothing.

    import isolated

    outcome = isolated.run(response_a + "\\nprint(add(2, 3))")
    print(outcome.status == "ok" and outcome.stdout == "5\\n")

A program cannot start another one. `run` therefore ends this program with a request; the host runs the source
by itself, and then this program from its start, in which `run` returns the outcome. The program must ask the
same whenever it runs: it must not depend on the clock. This file is put into the program's working folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

REQUEST = "tirjudge-isolated-request "
"""The start of the last line of standard error of a program that ends with a request."""
REQUEST_CODE = 86
"""Its exit code."""
MOST = 16
"""Isolated programs of one program."""
LONGEST_SECONDS = 60.0
WALL = 4
"""Seconds of wall time for each of CPU time: the machine may be busy."""
ANSWERS = "isolated.json"
"""The file with the outcomes so far, next to this module: a list of [digest of the request, outcome]."""

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_asked = 0


class IsolatedRun(NamedTuple):
    """The end of an isolated program. All of it may be the program's own invention, except the status."""

    status: str
    """`ok`; `error` for another exit code than 0; `signal`; or the limit that stopped it: `wall_limit`,
    `cpu_limit`, `memory_limit`, `output_limit`."""
    exit_code: int | None
    """None unless it ended by itself."""
    stdout: str
    stderr: str


def run(
    source: str, *, stdin: str = "", bindings: Mapping[str, Any] | None = None, seconds: float = 2.0
) -> IsolatedRun:
    """Run Python source as a program of its own and return how it ended; never raises for what it does.

    `bindings`: its global names, JSON values. `seconds`: its CPU time; it has four times as much wall time.
    Raises RuntimeError after the sixteenth isolated program, and if this program asked for another one when
    it was started before; TypeError and ValueError for bad arguments.
    """
    global _asked
    if not isinstance(source, str) or not isinstance(stdin, str):
        raise TypeError("isolated.run takes the source and stdin as texts")
    if not 0 < seconds <= LONGEST_SECONDS:
        raise ValueError(f"seconds must be above 0 and at most {LONGEST_SECONDS:g}, not {seconds}")
    request = json.dumps(
        {"source": source, "stdin": stdin, "bindings": dict(bindings or {}), "seconds": seconds},
        sort_keys=True,
    )
    if _asked == MOST:
        raise RuntimeError(f"a program may run {MOST} isolated programs")
    with open(os.path.join(_FOLDER, ANSWERS), encoding="utf-8") as file:
        answers = json.load(file)
    if _asked == len(answers):
        _ask(request)
    digest, outcome = answers[_asked]
    _asked += 1
    if digest != digest_of(request):
        raise RuntimeError("this program asks for another isolated program than when it was started before")
    return IsolatedRun(*outcome)


def digest_of(request: str) -> str:
    """Return the digest by which a request is recognised."""
    return hashlib.blake2b(request.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _ask(request: str) -> NoReturn:
    line = f"\n{REQUEST}{request}\n".encode()
    while line:
        line = line[os.write(2, line) :]
    # At once: what was printed so far is printed again when this program runs again.
    os._exit(REQUEST_CODE)
