"""`tirjudge sandbox run`: passes on the program's output and exit code, or its own where there is none."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from tests.command import TIRJUDGE, tirjudge


def sandbox_run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return tirjudge("sandbox", "run", *arguments, stdin=stdin)


def test_output_and_exit_code_pass_through(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys; print(input()); print('err', file=sys.stderr); sys.exit(7)")
    given = tmp_path / "given"
    given.write_text("from the file")
    done = sandbox_run(str(program), "--input", str(given))
    assert (done.returncode, done.stdout, done.stderr) == (7, "from the file\n", "err\n")


@pytest.mark.parametrize(
    ("source", "arguments", "code", "last_line"),
    [
        ("print('\x1b[31m')", (), 0, ""),
        ("1/0", (), 1, "ZeroDivisionError: division by zero"),
        (
            "import time; time.sleep(9)",
            ("--timeout", "0.2"),
            124,
            "tirjudge sandbox: stopped at the limit of 0.2 s",
        ),
        (
            "import sys; sys.stdout.write('x' * ((1 << 20) + 7))",
            (),
            123,
            "tirjudge sandbox: stopped at the limit of 1048576 bytes of output; 7 were cut",
        ),
        ("raise SystemExit(122)", (), 122, ""),
        (
            "raise SystemExit(124)",
            (),
            122,
            "tirjudge sandbox: the program's exit code 124 is passed on as 122",
        ),
        (
            "import os; os._exit(137)",
            (),
            122,
            "tirjudge sandbox: the program's exit code 137 is passed on as 122",
        ),
        ("import os; os.abort()", (), 134, "tirjudge sandbox: ended by signal 6"),
        (
            "import requests",
            ("--import-policy",),
            1,
            "PolicyError: the program was not run: line 1: import of requests: there is no network here",
        ),
        (
            "import not_installed",
            ("--import-policy", "--allow-import", "not_installed"),
            1,
            "ModuleNotFoundError: No module named 'not_installed'",
        ),
        ("", ("--allow-import", "x"), 2, "tirjudge sandbox: --allow-import requires --import-policy"),
        (
            "",
            ("--import-policy", "--allow-import", "a-b"),
            2,
            "tirjudge sandbox: ImportPolicy.imports must be names of modules, not 'a-b'",
        ),
        ("", ("--timeout", "0"), 2, "tirjudge sandbox: --timeout must be positive, not 0"),
        ("", ("--input", "/nowhere"), 2, "tirjudge sandbox: /nowhere: No such file or directory"),
    ],
)
def test_exit_codes(source, arguments, code, last_line):
    done = sandbox_run("-", *arguments, stdin=source)
    assert done.returncode == code, done
    assert (done.stderr.splitlines() or [""])[-1] == last_line


def test_a_missing_program_is_reported():
    done = sandbox_run("/no\x1bwhere.py")
    assert done.returncode == 2
    assert done.stderr == "tirjudge sandbox: /no\\x1bwhere.py: No such file or directory\n"


def test_a_terminal_gets_no_control_characters(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("print('\\x1b[31mred\\ttab')")
    ours, theirs = pty.openpty()
    subprocess.run([TIRJUDGE, "sandbox", "run", str(program)], stdout=theirs, check=True)
    os.close(theirs)
    assert os.read(ours, 4096) == b"\\x1b[31mred\ttab\r\n"
    os.close(ours)
