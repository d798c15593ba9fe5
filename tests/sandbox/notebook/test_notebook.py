"""Notebooks in real kernels: shared state, the ways a cell ends, and limits of time, memory and number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tirjudge_sandbox import Program, SandboxUnavailable, open_sandbox
from tirjudge_sandbox.notebook.cells import CellStatus, NotebookLimits
from tirjudge_sandbox.notebook.jupyter import JupyterSandbox
from tirjudge_sandbox.notebook.notebook import Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")

STUBBORN = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"

KILL_CLIENT = "import os, time; os.kill(1, 9); os.kill(os.getpid() + 1, 9); time.sleep(60)"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def jupyter() -> AsyncIterator[JupyterSandbox]:
    async with open_sandbox("jupyter", capacity=2, preload=()) as box:
        yield box


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def notebook(jupyter: JupyterSandbox) -> AsyncIterator[Notebook]:
    """A notebook shared by all tests that leave its state unchanged."""
    async with jupyter.notebook(limits=NotebookLimits(output_bytes=10_000)) as opened:
        yield opened


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tirjudge_sandbox.notebook.running_kernel.GRACE_SECONDS", 1)


async def test_cells_share_what_they_define(notebook):
    first = await notebook.run("x = 20\nprint('defined')")
    assert (first.status, first.stdout, first.by) == (CellStatus.OK, "defined\n", "kernel")
    second = await notebook.run("x + 1")
    assert second.displays == ({"text/plain": "21"},)
    assert not second.restarted


async def test_an_exception_is_reported_without_colours_and_keeps_the_state(notebook):
    await notebook.run("kept = 1")
    failed = await notebook.run("import sys\nprint('before', file=sys.stderr)\n1/0")
    assert (failed.status, failed.by, failed.stderr) == (CellStatus.ERROR, "kernel", "before\n")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero")
    assert failed.error.traceback[-1] == "ZeroDivisionError: division by zero"
    assert "\x1b" not in "".join(failed.error.traceback)
    assert (await notebook.run("kept")).displays == ({"text/plain": "1"},)


async def test_all_that_is_written_below_python_arrives_with_its_own_cell(jupyter):
    async with jupyter.notebook(limits=NotebookLimits(output_bytes=100_000)) as opened:
        for number in range(30):
            text = f"{number:5}" * 18_000  # more than a pipe holds
            ran = await opened.run(f"import os; _ = os.write(2, {text[:5]!r}.encode() * 18_000)")
            assert (ran.status, ran.stderr == text) == (CellStatus.OK, True), (number, len(ran.stderr))
        await opened.run("os.close(1)")
        assert (await opened.run("print(1); _ = os.write(2, b'2')")).stderr == "2"


@pytest.mark.parametrize(
    ("source", "name"), [("x = (", "SyntaxError"), ("a\0b", "SyntaxError"), ("'\ud800'", None), ("", None)]
)
async def test_unusual_sources_affect_only_their_own_cell(notebook, source, name):
    ran = await notebook.run(source)
    assert (ran.error and ran.error.name) == name, ran
    assert (await notebook.run("print(1)")).stdout == "1\n"


PRINTED = "import os, sys\nprint('a line')\nprint('half', end='')\n_ = os.write(1, b'!')\n"


@pytest.mark.parametrize(
    ("source", "status"),
    [
        pytest.param("import time; time.sleep(60)", CellStatus.TIME_LIMIT, marks=pytest.mark.slow),
        ("10**10**9", CellStatus.TIME_LIMIT),
        ("os._exit(3)", CellStatus.KERNEL_DIED),
        pytest.param("os.abort()", CellStatus.KERNEL_DIED, marks=pytest.mark.slow),
        pytest.param("import ctypes; ctypes.string_at(0)", CellStatus.KERNEL_DIED, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), 9)", CellStatus.KERNEL_DIED),
        ("exit()", CellStatus.OK),
    ],
)
async def test_what_a_cell_printed_before_its_end_is_kept(jupyter, source, status):
    async with jupyter.notebook() as notebook:
        ended = await notebook.run(PRINTED + source, wall_seconds=2)
        assert (ended.status, ended.stdout) == (status, "a line\nhalf!")


@pytest.mark.parametrize(
    "source",
    [
        r"raise ValueError('\ud800')",
        r"raise type('E', (Exception,), {'__str__': lambda self: '\udfff'})()",
        r"raise type('E\ud800', (Exception,), {})()",
        r"assert False, {'\ud800': 1}",
        "class E(Exception):\n    def __str__(self): raise ValueError('\\ud800')\nraise E()",
        r"print('\ud800')",
        "raise KeyboardInterrupt",
        "raise BaseExceptionGroup('g', [KeyboardInterrupt(), ValueError('\\ud800')])",
    ],
)
async def test_a_cell_that_raised_never_ended_well(notebook, source):
    failed = await notebook.run(source)
    assert failed.status is CellStatus.ERROR, failed
    assert failed.error.name
    assert (await notebook.run("print(1)")).stdout == "1\n"


async def test_half_a_character_in_a_display_costs_only_itself(notebook):
    source = r"from IPython.display import display; display({'text/plain': 'a\ud800b'}, raw=True)"
    shown = await notebook.run(source)
    assert (shown.status, shown.displays) == (CellStatus.OK, ({"text/plain": "a?b"},))


@pytest.mark.parametrize("limit", [50_000, pytest.param(10**9, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "function", ["def f(): f()", "def f():\n  try: f()\n  finally: y = 1", "f = lambda: [f() for _ in '1']"]
)
async def test_an_endless_recursion_costs_its_cell_and_not_the_kernel(jupyter, function, limit):
    limits = NotebookLimits(memory_bytes=256 << 20)
    async with jupyter.notebook(limits=limits) as notebook:
        await notebook.run("kept = 1")
        deep = await notebook.run(f"import sys; sys.setrecursionlimit({limit})\n{function}\nf()")
        assert (deep.status, deep.error.name) in (
            (CellStatus.ERROR, "RecursionError"),
            (CellStatus.ERROR, "MemoryError"),
        ), deep
        after = await notebook.run("kept")
        assert (after.displays, after.restarted) == (({"text/plain": "1"},), False)


async def test_a_slow_cell_is_interrupted_and_the_state_is_kept(notebook):
    await notebook.run("kept = 2")
    slow = await notebook.run("print('begun')\nimport time; time.sleep(60)", wall_seconds=1)
    assert (slow.status, slow.by, slow.stdout) == (CellStatus.TIME_LIMIT, "sandbox", "begun\n")
    after = await notebook.run("kept")
    assert (after.displays, after.restarted) == (({"text/plain": "2"},), False)


async def test_too_much_output_is_truncated_and_the_state_is_kept(notebook):
    await notebook.run("kept = 3")
    loud = await notebook.run("while True: print('x' * 99)")
    assert (loud.status, loud.truncated, len(loud.stdout)) == (CellStatus.OUTPUT_LIMIT, True, 10_000)
    assert (await notebook.run("kept")).displays == ({"text/plain": "3"},)


@pytest.mark.parametrize("source", ["'x' * 10_000_000", "raise ValueError('x' * 10_000_000)"])
async def test_a_huge_display_or_error_is_left_out_and_the_state_is_kept(notebook, source):
    await notebook.run("kept = 4")
    huge = await notebook.run(source)
    assert (huge.status, huge.truncated, huge.displays) == (CellStatus.OUTPUT_LIMIT, True, ())
    after = await notebook.run("kept")
    assert (after.displays, after.restarted) == (({"text/plain": "4"},), False)


async def test_a_cancelled_cell_is_stopped_before_the_next(notebook):
    task = asyncio.ensure_future(notebook.run("import time; print('late'); time.sleep(60)"))
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (await notebook.run("print('next')")).stdout == "next\n"


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("import os; os._exit(3)", "it ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 ended it"),
        ("import ctypes; ctypes.string_at(0)", "signal 11 ended it"),
        (KILL_CLIENT, "the kernel had to be killed by its worker"),
    ],
    ids=["exit", "kill", "crash", "client"],
)
async def test_a_dead_kernel_is_reported_and_replaced(jupyter, source, detail, impatient):
    async with jupyter.notebook(files={"given": b"1"}) as notebook:
        await notebook.run("x = 1; open('written', 'w').close()")
        died = await notebook.run(source)
        assert (died.status, died.by, died.detail) == (CellStatus.KERNEL_DIED, "sandbox", detail)
        after = await notebook.run("import os; 'x' in globals(), sorted(os.listdir())")
        assert after.restarted
        assert after.displays == ({"text/plain": "(False, ['given'])"},)


async def test_a_cell_that_ignores_interrupts_costs_the_kernel(jupyter, impatient):
    async with jupyter.notebook() as notebook:
        stubborn = await notebook.run(STUBBORN, wall_seconds=0.5)
        assert stubborn.status is CellStatus.TIME_LIMIT
        assert "did not react" in stubborn.detail
        assert (await notebook.run("1")).restarted


async def test_a_notebook_that_is_closed_while_a_kernel_is_restarted_frees_its_place(jupyter):
    before = jupyter.stats().running
    async with jupyter.notebook() as notebook:
        await notebook.run("import os; os._exit(3)")
        running = asyncio.ensure_future(notebook.run("import time; time.sleep(60)", wall_seconds=5))
        await asyncio.sleep(0)
        await notebook.close()
        late = await running
    assert (late.status, late.by) == (CellStatus.CLOSED, "sandbox")
    assert jupyter.stats().running == before


async def test_a_cell_that_called_exit_before_it_was_stopped_costs_the_kernel(jupyter):
    async with jupyter.notebook() as notebook:
        stopped = await notebook.run("exit()\nimport time; time.sleep(60)", wall_seconds=1)
        assert (stopped.status, stopped.detail) == (CellStatus.TIME_LIMIT, "stopped after 1 s")
        after = await notebook.run("print('next')")
        assert (after.status, after.stdout, after.restarted) == (CellStatus.OK, "next\n", True)


async def test_cpu_and_memory_are_limited_from_outside(jupyter):
    limits = NotebookLimits(cpu_seconds=1, memory_bytes=64 << 20)
    async with jupyter.notebook(limits=limits) as notebook:
        greedy = await notebook.run("x = bytearray(512 << 20)")
        assert greedy.error.name == "MemoryError"
        busy = await notebook.run("while True: pass")
        assert (busy.status, busy.detail) == (CellStatus.KERNEL_DIED, "it used all of its CPU time")


async def test_an_idle_notebook_is_closed_and_frees_its_place(jupyter):
    async with jupyter.notebook(limits=NotebookLimits(idle_seconds=0.1)) as notebook:
        await asyncio.sleep(1)
        late = await notebook.run("1")
        assert (late.status, late.by) == (CellStatus.CLOSED, "sandbox")
        assert late.detail == "the notebook was closed: it was idle for 0.1 s"
        before = jupyter.stats().running
    assert jupyter.stats().running == before


async def test_files_go_in_and_come_back_when_it_is_closed(jupyter):
    async with jupyter.notebook(files={"in/a": b"ab"}, fetch=("out", "none")) as notebook:
        await notebook.run("_ = open('out', 'wb').write(open('in/a', 'rb').read()[::-1])")
        ended = await notebook.close()
    assert dict(ended.files) == {"out": b"ba"}
    with pytest.raises(RuntimeError, match="not open"):
        await notebook.run("1")


async def test_notebooks_share_no_state(jupyter):
    async with jupyter.notebook() as one:
        await one.run("import random; x = 1; open('left', 'w').close(); first = random.random()")
        seed = await one.run("first")
    async with jupyter.notebook() as other:
        found = await other.run("import os; 'x' in globals(), os.listdir()")
        assert found.displays == ({"text/plain": "(False, [])"},)
        assert (await other.run("import random; random.random()")).displays == seed.displays


async def test_notebooks_above_the_capacity_wait(jupyter, notebook):
    async with jupyter.notebook() as second:
        third = jupyter.notebook()
        opening = asyncio.ensure_future(third.__aenter__())
        await asyncio.sleep(0.3)
        assert not opening.done()
        await second.close()
        await opening
        assert (await third.run("print(3)")).stdout == "3\n"
        await third.close()


async def test_without_the_extra_one_line_names_it(monkeypatch):
    monkeypatch.setattr("tirjudge_sandbox.notebook.jupyter._NEEDED", ("no_such_kernel",))
    with pytest.raises(SandboxUnavailable, match=r"no_such_kernel: pip install 'tirjudge\[jupyter\]'"):
        open_sandbox("jupyter")


PREPARED = Program(
    "import json\ntable = [1]\ndef main(): return json.dumps(table)\nclass Row: pass\nLENGTH = send = 'mine'"
)


@pytest.mark.slow
async def test_every_notebook_and_every_restarted_kernel_goes_on_after_the_prepared_program():
    async with open_sandbox("jupyter", capacity=1, preload=(), prepare=PREPARED) as box:
        async with box.notebook() as first:
            cell = await first.run(
                "table.append(2)\nimport pickle\npickle.loads(pickle.dumps(Row()))\nmain(), send"
            )
            assert cell.displays == ({"text/plain": "('[1, 2]', 'mine')"},), cell
            await first.run("import os; os._exit(1)")
            again = await first.run("main()")
            assert (again.restarted, again.displays) == (True, ({"text/plain": "'[1]'"},))
        async with box.notebook() as second:
            assert (await second.run("main()")).displays == ({"text/plain": "'[1]'"},)
        assert (await box.run(Program("print(main(), LENGTH)"))).stdout == "[1] mine\n"
