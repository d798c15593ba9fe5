"""Run `tirjudge judge` and other commands, with input rows and a result file."""

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tirjudge.cli import app

FAST = ("--backend-option", "capacity=1", "--backend-option", "preload=[]")
"""A sandbox with one worker, which opens without numpy and sympy."""


def judge(
    folder: Path, *arguments: str | list[Any], stdin: str = "", key: str = "", code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Judge rows; a list in place of a file's name is written to `rows.jsonl`."""
    words = [
        one if isinstance(one, str) else write_rows(folder / "rows.jsonl", one).name for one in arguments
    ]
    return invoke("judge", *words, folder=folder, stdin=stdin, code=code, TIRJUDGE_API_KEY=key)


def invoke(
    *words: str, folder: Path, stdin: str = "", code: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, in this process: a process of its own would only import everything again.

    `code`: the exit code that the command must end with.
    """
    environment["NO_COLOR"] = "1"
    with chdir(folder), reading(stdin):
        run = CliRunner().invoke(app, words, env=environment)
    if run.exception is not None and not isinstance(run.exception, SystemExit):
        raise run.exception
    assert code is None or run.exit_code == code, run.stdout + run.stderr
    return subprocess.CompletedProcess(words, run.exit_code, run.stdout, run.stderr)


def command(*words: object, code: int | None = None, **environment: str) -> Result:
    """Run a command in this folder and process; `code` is the exit code that it must end with."""
    run = CliRunner().invoke(app, [*map(str, words)], env=environment)
    assert code is None or run.exit_code == code, run.output
    return run


@contextmanager
def reading(text: str) -> Iterator[None]:
    """Let this process read the text from a pipe as its standard input."""
    before, (read, write) = os.dup(0), os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(write, text.encode())
    os.close(write)
    os.dup2(read, 0)
    os.close(read)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def through(endpoint: EndpointServer) -> tuple[str, ...]:
    return ("--base-url", endpoint.url, "--model", "m", *FAST)


def asking_as_tir(endpoint: EndpointServer) -> tuple[str, ...]:
    """Return the options of an endpoint whose script reads the responses before it writes a program."""
    return (*through(endpoint), "--prompts", "tir")


def pairs(count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"p{n}", "prompt": f"Question {n}", "responses": ["x", "y"], "label": 0} for n in range(count)
    ]


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def counting(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that lets a program compare the lengths and believes its output."""
    output = body["messages"][-1]["content"] if len(body["messages"]) > 1 else ""
    if not output:
        program = "print('longer:', 'A' if len(response_a) > len(response_b) else 'B')"
        return chat(f"I will measure.\n```python\n{program}\n```\n")
    return chat(f"So <preference>{re.findall('longer: (.)', output)[0]}</preference>")
