"""`tirjudge judge` prints one line per row on a terminal, plain lines in a pipe, and JSON with --json."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.command import TIRJUDGE
from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.judge_command import asking_as_tir, counting, judge, results, write_rows
from tests.tirjudge.judged_files import FAST

ROWS = [
    {"id": "one\x1b]0;t\x07", "prompt": "Which is longer?", "responses": ["aa", "b"], "label": "A"},
    {"id": "two", "prompt": "Which one is longer?", "responses": ["a", "bb"], "label": "A"},
]


def on_a_terminal(folder: Path, *arguments: str) -> str:
    """Run `tirjudge judge` with both outputs on a terminal of 100 columns; return what it received."""
    ours, theirs = pty.openpty()
    command = ["/bin/sh", "-c", 'stty cols 100; exec "$@"', "sh", TIRJUDGE, "judge", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    received = b""
    try:
        while block := os.read(ours, 65536):
            received += block
    except OSError:  # Linux reports the end of a terminal as an error.
        pass
    os.close(ours)
    assert process.wait() == 0, received
    return received.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_line_per_row_and_the_headline_at_the_end(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = counting
    write_rows(tmp_path / "rows.jsonl", ROWS)
    text = on_a_terminal(tmp_path, "rows.jsonl", "--order", "given", *FAST, *asking_as_tir(endpoint))
    lines = text.replace("\r", "\n").rstrip().splitlines()
    (one,) = (line for line in lines if "one\\x1b]0;t\\x07  A" in line)
    (two,) = (line for line in lines if "two           B" in line)
    assert "right" in one
    assert "wrong   undecided  longer: B" in two
    assert " <- print('longer:'" in two
    assert len(two) <= 110
    assert "\x1b]0;" not in text
    assert "2 of 2 rows have a verdict; accuracy 50.0% [9.5%, 90.5%], n = 2" in lines[-1]


def test_a_pipe_gets_neither_rows_nor_boxes_and_json_on_request(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = counting
    run = judge(tmp_path, ROWS, "--json", "--no-texts", *FAST, *asking_as_tir(endpoint), code=0)
    found = json.loads(run.stdout)
    assert (found["judged"], found["verdicts"], found["accuracy"], found["programs"]) == (2, 2, 0.5, 2)
    assert (found["results"], found["model"], found["failed"]) == ("rows.verdicts.jsonl", "m", 0)
    assert found["interval"][0] < 0.5 < found["interval"][1]
    assert "longer" not in run.stderr
    assert all("responses" not in row for row in results(tmp_path / "rows.verdicts.jsonl"))
    again = judge(tmp_path, "rows.jsonl", *FAST, *asking_as_tir(endpoint))
    assert again.stdout.startswith("judged    2 rows, 2 with a verdict\n")
    assert not set(again.stdout + run.stderr) & set("│┃─━╭┌┏")
