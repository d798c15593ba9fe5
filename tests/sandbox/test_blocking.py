"""The sandbox for code without an event loop, programs in short, and `help` of the public names."""

from __future__ import annotations

import asyncio
import pydoc
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

import tirjudge_sandbox
from tirjudge_sandbox import Limits, Program, SandboxUnavailable, Status, open_sandbox_sync
from tirjudge_sandbox.blocking import EventLoopThread


def test_programs_run_without_an_event_loop() -> None:
    before = threading.active_count()
    with open_sandbox_sync("local", capacity=2, preload=()) as box:
        assert box.run(Program("print(1)")).stdout == "1\n"
        assert box.run(Program("print(x + 1)", bindings={"x": 1})).stdout == "2\n"
        assert box.run(Program("while True: pass"), Limits(cpu_seconds=0.2)).status is Status.CPU_LIMIT
        with pytest.raises(ValueError, match="wall_seconds"):
            box.run(Program(""), Limits(wall_seconds=-1))
        assert box.run(Program("print('still open')")).stdout == "still open\n"
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="not open"):
        box.run(Program("print(1)"))


async def test_they_run_inside_a_running_event_loop_too() -> None:
    with open_sandbox_sync("local", capacity=1, preload=()) as box:
        assert box.run(Program("print(1)")).stdout == "1\n"


def test_threads_share_it_and_get_their_own_results() -> None:
    with open_sandbox_sync("local", capacity=2, preload=()) as box, ThreadPoolExecutor(8) as pool:
        assert box.capacity == 2
        ran = pool.map(lambda number: box.run(Program(f"print({number})")).stdout, range(20))
        assert [*ran] == [f"{number}\n" for number in range(20)]


def test_closing_ends_the_calls_of_other_threads() -> None:
    """Calls that wait for a place end too: the threads that made them would otherwise wait forever."""
    ended = []

    def call() -> None:
        try:
            ended.append(box.run(Program("import time; time.sleep(60)")).status)
        except (RuntimeError, CancelledError):
            ended.append(None)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(40)]
    with open_sandbox_sync("local", capacity=1, preload=(), spare=0) as box:
        for thread in threads:
            thread.start()
        time.sleep(0.5)
    for thread in threads:
        thread.join(timeout=5)
        assert not thread.is_alive()
    assert set(ended) <= {None, Status.SANDBOX_FAILED}
    assert len(ended) == 40


def test_an_interrupted_coroutine_is_finished_before_the_loop_ends() -> None:
    """Its own cleanup may take several turns of the loop."""
    finished = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            finished.append(True)

    thread = EventLoopThread("test")
    future = thread.submit(work())
    time.sleep(0.1)
    future.cancel()
    thread.close()
    assert finished


def test_a_sandbox_that_cannot_open_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="no sandbox 'locale'"):
        open_sandbox_sync("locale")
    with pytest.raises(SandboxUnavailable), open_sandbox_sync("remote", url="http://127.0.0.1:9"):
        pass
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Program", ['Program("print(x + 1)"']),
        ("Status", ["WALL_LIMIT, CPU_LIMIT", "SANDBOX_FAILED: the"]),
        ("open_sandbox", ["async with open_sandbox(", "capacity"]),
        ("open_sandbox_sync", ["with open_sandbox_sync() as box"]),
        ("BlockingSandbox", ["run(self, program", "Several threads"]),
    ],
)
def test_help_is_enough(name: str, texts: list[str]) -> None:
    shown = " ".join(pydoc.plain(pydoc.render_doc(getattr(tirjudge_sandbox, name))).replace("|", " ").split())
    assert [text for text in texts if text not in shown] == []
