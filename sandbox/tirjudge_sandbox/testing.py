"""Conformance checks that every sandbox backend must pass, for the tests of backend authors.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conformance(check):
        async with MySandbox() as box:
            await check(box)

Each check raises AssertionError on failure. They check the interface of `base.py`, not a way of isolating.
"""

from __future__ import annotations

import asyncio
import os

from tirjudge_sandbox.base import Execution, Limits, Program, Sandbox, Status


async def _run(box: Sandbox, source: str, **limits: float) -> Execution:
    return await box.run(Program(source=source), Limits(**limits))  # type: ignore[arg-type]


def _equal(found: object, wanted: object) -> None:
    assert found == wanted, f"{found!r}, wanted {wanted!r}"


async def output_and_exit_code(box: Sandbox) -> None:
    ran = await _run(box, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    _equal((ran.status, ran.exit_code, ran.stdout, ran.stderr), (Status.ERROR, 3, "out\n", "err\n"))


async def traceback_names_only_the_program(box: Sandbox) -> None:
    ran = await _run(box, "1/0")
    files = [line for line in ran.stderr.splitlines() if line.startswith("  File ")]
    _equal(files, ['  File "<program>", line 1, in <module>'])
    _equal(ran.stderr.splitlines()[-1], "ZeroDivisionError: division by zero")


async def bindings_and_stdin_arrive(box: Sandbox) -> None:
    program = Program(source="print(given, input())", bindings={"given": [1, "two"]}, stdin="three\n")
    _equal((await box.run(program)).stdout, "[1, 'two'] three\n")


async def files_go_in_and_come_back(box: Sandbox) -> None:
    program = Program(
        source="open('out', 'wb').write(open('in', 'rb').read()[::-1])",
        files={"in": b"ab"},
        fetch=("out", "none"),
    )
    _equal(dict((await box.run(program)).files), {"out": b"ba"})


async def programs_are_independent(box: Sandbox) -> None:
    await _run(box, "open('left', 'w').write('x'); import json; json.left = 1")
    ran = await _run(box, "import json, os; print(os.path.exists('left'), hasattr(json, 'left'))")
    _equal(ran.stdout, "False False\n")


async def seeds_repeat(box: Sandbox) -> None:
    program = Program(source="import random; print(random.random(), hash('x'))", seed=5)
    _equal((await box.run(program)).stdout, (await box.run(program)).stdout)


async def time_limits_end_a_program(box: Sandbox) -> None:
    asleep = await _run(box, "print(1)\nimport time; time.sleep(60)", wall_seconds=1)
    _equal((asleep.status, asleep.stdout), (Status.WALL_LIMIT, "1\n"))
    _equal((await _run(box, "while True: pass", cpu_seconds=1)).status, Status.CPU_LIMIT)


async def output_before_a_crash_is_kept(box: Sandbox) -> None:
    ran = await _run(box, "print(1)\nprint(2, end='')\nimport os; os.kill(os.getpid(), 9)")
    _equal((ran.status, ran.signal, ran.stdout), (Status.SIGNAL, 9, "1\n2"))


async def output_is_cut_and_marked(box: Sandbox) -> None:
    ran = await _run(box, "while True: print('x' * 99)", output_bytes=10_000)
    _equal((ran.status, ran.truncated, len(ran.stdout)), (Status.OUTPUT_LIMIT, True, 10_000))


async def the_host_is_out_of_reach(box: Sandbox) -> None:
    os.environ["TIRJUDGE_CONFORMANCE"] = "kept-by-the-host"
    try:
        ran = await _run(box, "import os; print(dict(os.environ))")
    finally:
        del os.environ["TIRJUDGE_CONFORMANCE"]
    assert "kept-by-the-host" not in ran.stdout
    ran = await _run(box, "import socket; socket.create_connection(('127.0.0.1', 9), timeout=1)")
    _equal(ran.status, Status.ERROR)


async def more_programs_than_capacity_wait(box: Sandbox) -> None:
    source = "import time; time.sleep(0.2)"
    ran = await asyncio.gather(*(_run(box, source, wall_seconds=10) for _ in range(box.capacity + 1)))
    _equal({execution.status for execution in ran}, {Status.OK})
    assert max(execution.queued_seconds for execution in ran) >= 0.1


async def a_cancelled_program_ends(box: Sandbox) -> None:
    task = asyncio.ensure_future(_run(box, "import time; time.sleep(60)", wall_seconds=90))
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    _equal((await _run(box, "print(1)")).stdout, "1\n")


CHECKS = (
    output_and_exit_code,
    traceback_names_only_the_program,
    bindings_and_stdin_arrive,
    files_go_in_and_come_back,
    programs_are_independent,
    seeds_repeat,
    time_limits_end_a_program,
    output_before_a_crash_is_kept,
    output_is_cut_and_marked,
    the_host_is_out_of_reach,
    more_programs_than_capacity_wait,
    a_cancelled_program_ends,
)
