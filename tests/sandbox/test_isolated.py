"""The module `isolated`: code that runs as a separate program cannot change the result of its caller."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tirjudge_sandbox import Execution, ImportPolicy, Limits, Program, Sandbox, Status, run_with_isolated
from tirjudge_sandbox.guest import isolated
from tirjudge_sandbox.local import LocalSandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTED = """
import isolated

passed = 0
for a, b in [(2, 3), (10, -4)]:
    outcome = isolated.run(response + f"\\nprint(add({a}, {b}))", seconds=0.2)
    passed += outcome.status == "ok" and outcome.stdout == f"{a + b}\\n"
print(passed, "of 2 passed")
"""
RIGHT = "def add(a, b):\n    return a + b"
WRONG = "def add(a, b):\n    return 41"


async def adding(sandbox: Sandbox, response: str) -> Execution:
    return await run_with_isolated(sandbox, Program(source=TESTED, bindings={"response": response}))


async def test_code_runs_as_a_separate_program_in_every_placement(target: Sandbox) -> None:
    for response, passed in ((RIGHT, 2), (WRONG, 0)):
        ran = await adding(target, response)
        assert (ran.status, ran.stdout, ran.stderr) == (Status.OK, f"{passed} of 2 passed\n", "")


HOSTILE = {
    "prints": "print('2 of 2 passed')",
    "exits": "raise SystemExit(0)",
    "exits at once": "import os; os._exit(0)",
    "patches built-ins": "import builtins; builtins.print = lambda *_: None; builtins.int.__add__",
    "signals every process": "import os\nfor pid in (os.getppid(), 0, -1):\n    os.kill(pid, 9)",
    "looks for its caller": "import sys\nsys._getframe(1).f_globals['passed'] = 2",
    "looks for the count": "import gc\nfor o in gc.get_objects():\n"
    "    if isinstance(o, dict) and 'passed' in o:\n        o['passed'] = 99",
    "writes the answers": "import json\njson.dump([], open('isolated.json', 'w'))\nimport isolated",
    "asks for another program": "import sys, os\nsys.stderr.write('\\ntirjudge-isolated-request {}\\n')\n"
    "sys.stderr.flush()\nos._exit(86)",
    "spins": "while True: pass",
    "sleeps": "import time; time.sleep(60)",
    "fills the memory": "x = bytearray(1 << 40)",
    "floods its output": "while True: print('x' * 99999)",
}


async def test_code_can_signal_no_other_program(target: Sandbox) -> None:
    ran = await adding(target, f"{WRONG}\n{HOSTILE['signals every process']}")
    assert (ran.status, ran.stdout, ran.stderr) == (Status.OK, "0 of 2 passed\n", "")


@pytest.mark.parametrize("attack", HOSTILE)
async def test_hostile_code_fails_its_tests_and_changes_nothing_else(box: Sandbox, attack: str) -> None:
    ran = await adding(box, f"{WRONG}\n{HOSTILE[attack]}")
    assert (ran.status, ran.stdout, ran.stderr) == (Status.OK, "0 of 2 passed\n", "")


async def test_an_outcome_is_data(box: Sandbox) -> None:
    source = """
from isolated import run

for code, more in (
    ("print(input(), x)", {"stdin": "in", "bindings": {"x": [1, None]}}),
    ("import sys; print('no', file=sys.stderr); sys.exit(3)", {}),
    ("import os; os.abort()", {}),
    ("import time; time.sleep(99)", {"seconds": 0.1}),
    ("while True: print('x' * 9999)", {}),
    ("import isolated; print(isolated.run('print(7)').stdout)", {}),
    ("import isolated; print(isolated.run('import isolated').stderr)", {}),
):
    ended = run(code, **more)
    print(ended.status, ended.exit_code, ended.stdout[:20].split(), ended.stderr.split()[:1])
"""
    ran = await run_with_isolated(box, Program(source=source))
    assert ran.stdout.splitlines() == [
        "ok 0 ['in', '[1,', 'None]'] []",
        "error 3 [] ['no']",
        "signal None [] []",
        "wall_limit None [] []",
        "output_limit None ['xxxxxxxxxxxxxxxxxxxx'] []",
        "ok 0 ['7'] []",
        "ok 0 ['Traceback', '(most', 'rece'] []",
    ]


async def test_the_import_policy_allows_the_module() -> None:
    async with LocalSandbox(capacity=1, preload=(), import_policy=ImportPolicy()) as box:
        assert (await adding(box, RIGHT)).stdout == "2 of 2 passed\n"


@pytest.mark.slow
async def test_time_and_number_are_limited_together(box: Sandbox) -> None:
    many = Program(source="import isolated\nfor n in range(99):\n    print(n, isolated.run('').status)")
    ran = await run_with_isolated(box, many)
    assert ran.status is Status.ERROR
    assert len(ran.stdout.splitlines()) == isolated.MOST
    assert ran.stderr.endswith("RuntimeError: a program may run 16 isolated programs\n")
    spinning = Program(
        source="import isolated\nfor _ in range(9): isolated.run('while 1: pass', seconds=0.2)"
    )
    ran = await run_with_isolated(box, spinning, Limits(cpu_seconds=0.5))
    assert ran.status is Status.CPU_LIMIT
    assert 0.5 <= ran.cpu_seconds < 2


async def test_what_a_caller_printed_before_the_time_was_spent_is_kept(box: Sandbox) -> None:
    source = "import isolated, sys\nprint('first')\nprint('err', file=sys.stderr)\n"
    source += "while True: isolated.run('while 1: pass', seconds=0.3)"
    ran = await run_with_isolated(box, Program(source=source), Limits(cpu_seconds=1))
    assert (ran.status, ran.exit_code) == (Status.CPU_LIMIT, None)
    assert (ran.stdout, ran.stderr) == ("first\n", "err\n")


async def test_time_that_is_spent_while_a_program_asks_shows_nothing_of_the_request(box: Sandbox) -> None:
    class Late(LocalSandbox):
        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            ran = await box.run(program, limits)
            return replace(ran, status=Status.CPU_LIMIT, cpu_seconds=limits.cpu_seconds)

    source = "import isolated, sys\nprint('err', file=sys.stderr)\nisolated.run('print(1)')"
    ran = await run_with_isolated(Late(), Program(source=source))
    assert (ran.status, ran.exit_code, ran.stderr) == (Status.CPU_LIMIT, None, "err\n")


async def test_a_program_that_asks_differently_each_time_is_an_error(box: Sandbox) -> None:
    source = "import isolated, os\nisolated.run(f'#{os.urandom(8)}')"
    ran = await run_with_isolated(box, Program(source=source))
    assert ran.stderr.endswith("asks for another isolated program than when it was started before\n")


@pytest.mark.parametrize(
    "request_line",
    [
        "{",
        "[]",
        '{"source": 1}',
        '{"source": "", "stdin": "", "seconds": 1, "bindings": {"a": %s}}' % ("[" * 600 + "]" * 600),
        json.dumps({"source": "", "stdin": "", "bindings": {}, "seconds": -1}),
    ],
)
async def test_a_forged_request_is_an_ordinary_error(box: Sandbox, request_line: str) -> None:
    forged = f"import isolated, os\nos.write(2, {(chr(10) + isolated.REQUEST + request_line).encode()!r})"
    ran = await run_with_isolated(box, Program(source=f"{forged}\nos._exit({isolated.REQUEST_CODE})"))
    assert (ran.status, ran.exit_code) == (Status.ERROR, isolated.REQUEST_CODE)
