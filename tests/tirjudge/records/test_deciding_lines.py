"""What a table says about the program behind a verdict: the lines that tell the responses apart."""

from __future__ import annotations

from typing import Any

import pytest

from tirjudge.records.result_row import read_result_row
from tirjudge.records.text import deciding_lines

CHECK = """\
def check(r):
    return "," not in r
for name, r in zip("AB", responses):
    print(name, check(r))
"""


def decided(stdout: str, order: list[int], source: str = CHECK, **program: Any) -> tuple[str, str]:
    passage = {"kind": "program", "text": source, "status": "ok", "stdout": stdout, "stderr": "", **program}
    view = {"view": "v", "order": order, "stop": "verdict", "segments": [passage], "verdict": None}
    row = {"id": "1", "format": "pairwise", "verdict": "A", "choice": 0, "stop": "verdict", "views": [view]}
    return deciding_lines(read_result_row(row, "file:1"))


@pytest.mark.parametrize(
    ("stdout", "order", "shown"),
    [
        ("A False\nB True\n", [0, 1], "A False · B True"),
        # The letters become those of the row, which has the response shown first as B.
        ("A False\nB True\n", [1, 0], "A True · B False"),
        ("Response A: 3\nResponse B: 5\n", [1, 0], "A 5 · B 3"),
        # Only what differs, of several checks in the same order for both.
        ("A 9 words\nA no comma\nB 9 words\nB a comma\n", [0, 1], "A no comma · B a comma"),
        ("A 1\nB 1\n", [0, 1], "A 1 · B 1 (alike)"),
        # Letters inside of a line cannot be replaced safely.
        ("longer: B\n", [1, 0], "longer: B (its A,B: B,A)"),
        ("A short text and nothing else\n3 5\n4 4\n", [0, 1], "A short text and nothing else · 3 5"),
        ("", [0, 1], "(no output)"),
    ],
)
def test_lines_that_tell_the_responses_apart(stdout: str, order: list[int], shown: str) -> None:
    assert decided(stdout, order) == (shown, '"," not in r')


def test_a_failed_program_and_one_without_a_function() -> None:
    failed = decided(
        "", [0, 1], "print(1 / 0)\n\n", status="error", stderr="Traceback\nZeroDivisionError: x\n"
    )
    assert failed == ("error: ZeroDivisionError: x", "print(1 / 0)")


def test_hostile_output_is_one_short_line() -> None:
    shown, check = decided("A \x1b[2J" + "x" * 500 + "\nB y\n", [0, 1], "print('\u202e')\n")
    assert shown.startswith("A \\x1b[2Jxxx")
    assert (len(shown), shown[-1]) == (160, "…")
    assert check == "print('\\u202e')"
