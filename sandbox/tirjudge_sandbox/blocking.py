"""A sandbox for code without an event loop: its programs run in an event loop of a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from tirjudge_sandbox.base import Execution, Limits, Program, Sandbox
from tirjudge_sandbox.registry import open_sandbox

_DEFAULT_LIMITS = Limits()

T = TypeVar("T")

Work = Coroutine[Any, Any, T]


class EventLoopThread:
    """An event loop in a thread of its own, for callers that have another loop or none.

    It runs coroutines until it is closed.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._submitted: set[Future[Any]] = set()
        # A daemon, so that a loop that is never closed does not keep Python from exiting.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> Future[T]:
        """Start a coroutine. Cancelling the future cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._submitted.add(future)
        future.add_done_callback(self._submitted.discard)
        return future

    def run(self, work: Work[T]) -> T:
        """Run a coroutine and wait for its result. Whatever interrupts the wait cancels the coroutine."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, wait for its end and stop the loop. A second call does nothing."""
        if not self._loop.is_closed():
            # Other threads wait for them, and would do so forever.
            for future in list(self._submitted):
                future.cancel()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_end_all())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _end_all() -> None:
    """Wait for the tasks that were cancelled, whose cleanup may need others; then end those too."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        ending = {task for task in others if task.cancelling()}
        if not ending:
            for task in others:
                task.cancel()
        await asyncio.wait(ending or others)


class BlockingSandbox:
    """A sandbox whose `run` blocks, for code that is not asynchronous; see `open_sandbox_sync`.

    Several threads may call `run` at the same time: their programs run at the same time, at most `capacity`
    at once.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        """`sandbox` is not open yet: it is opened and closed with this object."""
        self._sandbox = sandbox
        self._thread: EventLoopThread | None = None

    @property
    def capacity(self) -> int:
        """The most programs that run at once."""
        return self._sandbox.capacity

    def __enter__(self) -> Self:
        """Open the sandbox. Raises SandboxUnavailable, in one line, where programs cannot be isolated."""
        thread = EventLoopThread("tirjudge-sandbox")
        try:
            thread.run(self._sandbox.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *error: Any) -> None:
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.run(self._sandbox.__aexit__(*error))
            thread.close()

    def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program and wait for its end. Never raises for what the program does.

        Raises ValueError for a program or limits that cannot be run whatever the source is, and RuntimeError
        outside of the `with` block. An interrupt, such as Ctrl-C, kills the program.
        """
        if self._thread is None:
            raise RuntimeError("the sandbox is not open: use `with open_sandbox_sync(...) as box`")
        return self._thread.run(self._sandbox.run(program, limits))


def open_sandbox_sync(name: str = "local", /, **options: Any) -> BlockingSandbox:
    """Return the sandbox called `name`, for code without an event loop.

    ```python
    with open_sandbox_sync() as box:
        print(box.run(Program("print(1 + 1)")).stdout)  # 2
    ```

    Names and options are those of `open_sandbox`, and so are the errors. It also works in a notebook.
    """
    return BlockingSandbox(open_sandbox(name, **options))
