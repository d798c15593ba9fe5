"""Every command ends quietly when the reader closes the pipe, as `head` does."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import TIRJUDGE
from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.judge_command import pairs, results, through, write_rows

UNREAD = 141
"""The exit code that a shell reports for a program that SIGPIPE ended."""


@pytest.fixture
def pipe() -> Iterator[int]:
    """Open a pipe whose read end is closed."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        (("--help",), "1"),
        pytest.param(("formats",), "", marks=pytest.mark.slow),
        pytest.param(("data", "inspect", "rows.jsonl"), "", marks=pytest.mark.slow),
    ],
)
def test_a_closed_pipe_is_not_reported(
    words: tuple[str, ...], unbuffered: str, pipe: int, tmp_path: Path
) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [TIRJUDGE, *words], cwd=tmp_path, env=environment,
        stdout=pipe, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (UNREAD, "")


@pytest.mark.slow
def test_an_agent_that_disconnects_ends_the_server_quietly(pipe: int) -> None:
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    done = subprocess.run(
        [TIRJUDGE, "mcp"], input=f"{said}\n", stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (UNREAD, "")


@pytest.mark.parametrize("stream", every(2, ["stdout", "stderr"]))
def test_judged_rows_are_kept(stream: str, pipe: int, tmp_path: Path, endpoint: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    command = [TIRJUDGE, "judge", "rows.jsonl", "--no-tools", *through(endpoint)]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, stream: pipe}
    done = subprocess.run(command, cwd=tmp_path, text=True, check=False, **streams)
    assert done.returncode == UNREAD
    if stream == "stdout":
        assert done.stderr == "judging with m\n"
        assert len(results(tmp_path / "rows.verdicts.jsonl")) == 2


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [TIRJUDGE, "formats"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "tirjudge: cannot write: No space left on device\n")
