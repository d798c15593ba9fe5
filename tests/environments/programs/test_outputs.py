"""The text that a model sees of an execution."""

from __future__ import annotations

import pytest

from tirjudge_environments import Refused, RunCode, TirPairwise
from tirjudge_environments.programs.outputs import cut_middle, output_text
from tirjudge_sandbox import Execution, Status

TRACEBACK = """Traceback (most recent call last):
  File "program.py", line 1, in <module>
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero
"""
SYNTAX_ERROR = "  File \"program.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"


@pytest.mark.parametrize(
    ("execution", "shown"),
    [
        (Execution(status=Status.OK, exit_code=0, stdout="A: 58\nB: 60\n\n"), "A: 58\nB: 60"),
        (Execution(status=Status.OK, exit_code=0, stdout="1\n", stderr="a warning\n"), "1"),
        (Execution(status=Status.OK, exit_code=0), "(no output)"),
        (
            Execution(status=Status.ERROR, exit_code=1, stdout="half\n", stderr=TRACEBACK),
            "ZeroDivisionError: division by zero",
        ),
        (
            Execution(status=Status.ERROR, exit_code=1, stderr=SYNTAX_ERROR),
            "SyntaxError: '(' was never closed",
        ),
        (Execution(status=Status.ERROR, exit_code=1, stderr="no such word\n"), "no such word"),
        (Execution(status=Status.ERROR, exit_code=3, stdout="half\n"), "SystemExit: 3"),
        (
            Execution(status=Status.WALL_LIMIT, signal=9, stdout="half\n"),
            "TimeoutError: the program was stopped at its wall clock limit",
        ),
        (
            Execution(status=Status.CPU_LIMIT, signal=24),
            "TimeoutError: the program was stopped at its CPU time limit",
        ),
        (
            Execution(status=Status.MEMORY_LIMIT, signal=9),
            "MemoryError: the program was stopped at its memory limit",
        ),
        (
            Execution(status=Status.OUTPUT_LIMIT, signal=9, stdout="x" * 9999, truncated=True),
            "OSError: the program was stopped at its output limit",
        ),
        (
            Execution(status=Status.OUTPUT_LIMIT, signal=9, truncated=True, kept_bytes=9999, cut_bytes=200),
            "OSError: the program was stopped at its output limit (9999 bytes kept, 200 bytes cut)",
        ),
        (Execution(status=Status.SIGNAL, signal=6), "the program was ended by SIGABRT"),
        (Execution(status=Status.SIGNAL, signal=99), "the program was ended by signal 99"),
    ],
)
def test_output_or_one_line_about_the_error(execution: Execution, shown: str) -> None:
    assert output_text(execution, 2000) == shown


def test_a_failed_sandbox_is_never_shown() -> None:
    with pytest.raises(ValueError, match="never shown"):
        output_text(Execution(status=Status.SANDBOX_FAILED, detail="the worker is gone"), 2000)


def test_a_long_output_is_truncated_in_the_middle_with_a_count() -> None:
    assert cut_middle("0123456789", 5) == "012\n... 5 characters left out ...\n89"
    assert cut_middle("0123456789", 10) == "0123456789"


@pytest.mark.parametrize(
    ("opened", "shown"), [(False, "```output\n42\n```\n"), (True, "42\n```\n")], ids=["closed", "opened"]
)
def test_the_output_fence_is_opened_once(opened: bool, shown: str) -> None:
    execution = Execution(status=Status.OK, exit_code=0, stdout="42\n")
    assert TirPairwise().show(RunCode("print(42)", opened=opened), execution) == shown


def test_a_fence_inside_an_output_is_quoted() -> None:
    execution = Execution(status=Status.OK, exit_code=0, stdout="```python\n1\n  ````\na ``` b\n``\n")
    request = RunCode("")
    assert TirPairwise().show(request, execution) == (
        "```output\n> ```python\n1\n>   ````\na ``` b\n``\n```\n"
    )
    assert TirPairwise(exact=True).show(request, execution) == (
        "```output\n```python\n1\n  ````\na ``` b\n``\n```\n"
    )


def test_a_native_call_is_answered_without_a_fence() -> None:
    execution = Execution(status=Status.OK, exit_code=0, stdout="```\n")
    assert TirPairwise(protocol="tool").show(RunCode("", call_id="1"), execution) == "```"


def test_a_refusal_gives_the_reason() -> None:
    shown = TirPairwise().show(RunCode(""), Refused("The budget of 3 programs is spent."))
    assert shown == "```output\nThe budget of 3 programs is spent.\n```\n"
