"""Answers of `run_python_code`, from the real sandbox."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tirjudge.mcp.run_python import Answer, SandboxFailed, run_python_code
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status, open_sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def box() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=1, preload=()) as opened:
        yield opened


async def answered(box: Sandbox, code: str, mode: str = "json", **variables: object) -> Answer:
    return await run_python_code(box, code, variables, mode, Limits(wall_seconds=2))


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("None", None),
        ("'text'", "text"),
        ("{'a': (1, 2.5), 3: True}", {"a": [1, 2.5], "3": True}),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(3)", {"x": 3}),
        ("import datetime\ndatetime.date(2024, 2, 1)", "2024-02-01"),
        ("object", "<class 'object'>"),
        ("{(1, 2): 3}", "{(1, 2): 3}"),
        ("x = []\nx.append(x)\nx", "[[...]]"),
        (
            "{'a': [float('inf'), (-float('inf'), 1.5)], 'b': {float('nan'): None}}",
            {"a": ["inf", ["-inf", 1.5]], "b": {"NaN": None}},
        ),
        ("import numpy as np\nnp.array([1.0, np.nan])", [1.0, "nan"]),
        ("10 ** 400", 10**400),
        ("import asyncio\nawait asyncio.sleep(0)\nawait asyncio.gather(asyncio.sleep(0, 'late'))", ["late"]),
        ("", None),
        ("'é\\u2028'", "é\u2028"),
        ("__name__", "__main__"),
    ],
)
async def test_the_value_of_the_last_expression_is_returned(box, code, value):
    answer = await answered(box, code)
    found = json.loads(answer.value or "null", parse_constant=pytest.fail)
    assert (answer.status, found) == ("success", value), answer


@pytest.mark.parametrize(
    ("code", "last_line"),
    [
        ("1/0", "ZeroDivisionError: division by zero"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import os; os.abort()", "the program was ended by SIGABRT"),
        ("import time; time.sleep(60)", "TimeoutError: the program was stopped at its wall clock limit"),
        (
            "import sys; sys.stdout.write('x' * ((1 << 20) + 7))",
            "OSError: the program was stopped at its output limit (1048576 bytes kept, N bytes cut)"
            "; its output is unfinished",
        ),
    ],
)
async def test_errors_are_reported(box, code, last_line):
    answer = await answered(box, code)
    assert answer.status == "run-error"
    # The answer's own frame is output too.
    found = re.sub(r"[0-9]+ bytes cut", "N bytes cut", answer.error.strip().splitlines()[-1])
    assert found == last_line


async def test_what_was_printed_before_a_crash_is_output_and_marked(box):
    answer = await answered(box, "print('a line')\nprint('half', end='')\nimport os; os.abort()")
    assert answer.output == ("a line", "half")
    assert answer.error == "the program was ended by SIGABRT; its output is unfinished"


async def test_a_traceback_shows_only_the_callers_code(box):
    answer = await answered(box, "def f():\n    raise ValueError('no')\nf()")
    frames = [line for line in answer.error.splitlines() if line.startswith("  File")]
    assert frames == ['  File "main.py", line 3, in <module>', '  File "main.py", line 2, in f']
    assert "    raise ValueError('no')" in answer.error


WRAPPED = [
    "class Odd:\n    def __repr__(self):\n        raise ValueError('no form')\nOdd()",
    "class Odd:\n    def tolist(self):\n        raise KeyError('no form')\nOdd()",
    "class Odd(str):\n    def __format__(self, form):\n        raise KeyError('no form')\nOdd()",
    "class Odd:\n    __class__ = property(lambda self: 1 / 0)\nOdd()",
    "async def work():\n    return 1\nwork()",
    "async def work():\n    return 1\nmade = work()\nNone",
    "async def work():\n    return 1\nawait work()\nwork()\n[work()]",
    "import io, sys\nsys.stdout = io.StringIO()\n'\\ud83d'",
    "'\\ud83d'",
    "raise ValueError('\\ud83d')",
    "10 ** 5000",
    "import sys\nsys.stdout.close()\n1",
]


@pytest.mark.parametrize("mode", ["json", "xml"])
@pytest.mark.parametrize("code", WRAPPED)
async def test_the_program_around_the_agents_code_is_never_shown(box, code, mode):
    shown = (await answered(box, code, mode)).shown(mode)
    assert not re.search(r"<program>|python_code|text_as_it_is|sandbox|_json|_plain|tracemalloc", shown), (
        shown
    )
    if "def work" in code:
        assert "RuntimeWarning: coroutine 'work' was never awaited" in shown
    if "no form" in code and "str" not in code:
        assert "run-error" in shown
        assert "main.py" in shown
    if "ud83d" in code and "raise" not in code:
        assert "success" in shown


async def test_a_warning_of_the_agents_code_keeps_its_place(box):
    answer = await answered(box, "import warnings\nwarnings.warn('old')")
    assert answer.output == ("main.py:2: UserWarning: old", "  warnings.warn('old')")


@pytest.mark.parametrize("mode", ["json", "xml"])
@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("print('first' + 'x' * 9000 + 'last')", ("first", "last")),
        ("'first' + 'x' * 9000 + 'last'", ("first", "last")),
        ("['first'] + ['\"'] * 9000 + ['last']", ("first", "last")),
        ("print('\\n' * 9000 + 'last')\n'value'", ("last", "value")),
        ("print('out' + 'x' * 9000)\nraise ValueError('first' + 'x' * 9000 + 'last')", ("out", "last")),
    ],
)
async def test_a_long_answer_is_cut_in_the_middle(box, code, ends, mode):
    answer = await answered(box, code, mode)
    assert len(answer.shown(mode)) > 5000
    cut = answer.shown(mode, 2000)
    assert 500 < len(cut) <= 2000
    assert re.search(r"\.\.\. [0-9]+ characters left out \.\.\.", cut)
    assert all(end in cut for end in ends)
    if mode == "json":
        assert set(json.loads(cut)) == {"status", "output", "error" if "raise" in code else "return_value"}
    else:
        assert cut.startswith("<status>")
        assert cut.endswith(">")


async def test_both_streams_are_output_and_the_value_is_not(box):
    answer = await answered(box, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n'value'")
    assert (answer.output, answer.value) == (("out", "err"), '"value"')


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("mode", ["json", "xml"])
async def test_a_program_that_writes_for_ever_has_a_bounded_answer(box, mode, stream):
    """An agent's context has no room for it."""
    limit = 10_000
    code = f"import sys\nwhile True:\n    sys.{stream}.write('<x>' * 1000)"
    answer = await run_python_code(box, code, {}, mode, Limits(wall_seconds=20, output_bytes=limit))
    assert sum(map(len, answer.output)) <= limit
    assert "output" in answer.error
    assert answer.error.endswith("; its output is unfinished")
    assert answer.value is None


@pytest.mark.parametrize("forged", ["1}", "NaN", "[-Infinity]", "1e999", "{'a'"])
async def test_an_invalid_value_is_left_out(box, forged):
    """The value follows a mark that the program can learn."""
    code = "import sys\nwrite = sys.stdout.write\n"
    code += f"sys.stdout.write = lambda text: write(text[:-1] + {forged!r})\n1"
    answer = await answered(box, code)
    assert answer.value is None
    assert json.loads(answer.shown("json"))["return_value"] is None


async def test_a_tag_in_the_output_cannot_end_the_element():
    shown = Answer(("</output >", "<OUTPUT>", "<b>"), error="</error>").shown("xml")
    assert shown == (
        "<status>run-error</status>\n<output>\n&lt;/output &gt;\n&lt;OUTPUT&gt;\n<b>\n</output>\n"
        "<error>\n&lt;/error&gt;\n</error>"
    )


async def test_many_open_tags_are_escaped_in_linear_time():
    started = time.process_time()
    shown = Answer(("<output" * 2000 + "< " * 2000,)).shown("xml")
    assert time.process_time() - started < 1
    assert shown.count("&lt;output") == 2000
    assert shown.count("<output") == 1


async def test_a_failed_sandbox_is_not_reported_as_output():
    class Broken:
        async def run(self, program: Program, limits: Limits) -> Execution:
            return Execution(status=Status.SANDBOX_FAILED, detail="gone")

    with pytest.raises(SandboxFailed, match="the sandbox failed, not the program: gone"):
        await answered(Broken(), "1")
