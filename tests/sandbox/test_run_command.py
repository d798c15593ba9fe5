"""`tirjudge sandbox run`: passes on the program's output and exit code, or its own where there is none."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest
from typer.testing import CliRunner, Result

from tests.command import TIRJUDGE, tirjudge
from tirjudge.cli import app


def sandbox_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return tirjudge("sandbox", "run", *arguments)


def test_output_and_exit_code_pass_through(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; print(input()); print('err', file=sys.stderr); sys.exit(7)")
    given = tmp_path / "given"
    given.write_text("from the file")
    done = sandbox_run(str(program), "--input", str(given))
    assert (done.returncode, done.stdout, done.stderr) == (7, "from the file\n", "err\n")


def test_bytes_that_are_not_utf_8_arrive_as_they_are(tmp_path):
    program, given = tmp_path / "program.py", tmp_path / "given"
    program.write_bytes(b"# coding: latin-1\nimport sys; print(len('\xe9'), sys.stdin.buffer.read())")
    given.write_bytes(b"caf\xe9\n")
    done = sandbox_run(str(program), "--input", str(given))
    assert (done.returncode, done.stdout) == (0, "1 b'caf\\xe9\\n'\n")


def run_here(source: str, *arguments: str) -> Result:
    """Run a program in this process, in a sandbox that opens without numpy and sympy."""
    words = ["sandbox", "run", "-", "--backend-option", "preload=[]", *arguments]
    return CliRunner().invoke(app, words, input=source)


@pytest.mark.parametrize(
    ("source", "arguments", "code", "said"),
    [
        ("1/0", (), 1, "ZeroDivisionError"),
        ("import time; time.sleep(9)", ("--timeout", "0.2"), 124, "0.2 s"),
        ("import time; time.sleep(9)", ("--program-limit", "wall_seconds=0.2"), 124, "0.2 s"),
        ("bytearray(1 << 29)", ("--program-limit", "memory_bytes=1e8"), 1, "MemoryError"),
        ("", ("--program-limit", "memory=1"), 2, "no limit 'memory'; there are wall_seconds, cpu_seconds"),
        ("", ("--program-limit", "threads=1.5"), 2, "threads must be a whole number, not 1.5"),
        ("", ("--program-limit", "threads=x"), 2, "the limit threads is a number, not 'x'"),
        ("", ("--program-limit", "threads"), 2, "write KEY=VALUE"),
        ("import sys; sys.stdout.write('x' * ((1 << 20) + 7))", (), 123, "7 were cut"),
        ("raise SystemExit(124)", (), 122, "exit code 124 is passed on as 122"),
        ("import os; os.abort()", (), 134, "signal 6"),
        ("import requests", ("--import-policy",), 1, "PolicyError"),
        ("", ("--allow-import", "x"), 2, "--import-policy"),
        ("", ("--input", "/nowhere"), 2, "/nowhere"),
    ],
)
def test_exit_codes(source, arguments, code, said):
    done = run_here(source, *arguments)
    assert done.exit_code == code, done.output
    assert said in done.stderr.splitlines()[-1]


def test_the_help_says_which_codes_a_program_can_feign():
    """Its own codes from 123 up become 122, whereas 2 is also that of wrong usage."""
    feigned = {code: run_here(f"raise SystemExit({code})").exit_code for code in (2, 123, 125, 137)}
    assert feigned == {2: 2, 123: 122, 125: 122, 137: 122}
    told = " ".join(CliRunner().invoke(app, ["sandbox", "run", "--help"]).stdout.replace("│", " ").split())
    assert "2 for wrong usage, which a program can feign" in told


def test_a_terminal_gets_no_control_characters(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print('\\x1b[31mred\\ttab')")
    ours, theirs = pty.openpty()
    subprocess.run([TIRJUDGE, "sandbox", "run", str(program)], stdout=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 4096) == b"\\x1b[31mred\ttab\r\n"
    os.close(ours)
