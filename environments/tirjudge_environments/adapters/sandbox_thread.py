"""A sandbox on an event loop in its own thread, for code that has no event loop or several."""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from tirjudge_sandbox import Sandbox, open_sandbox

T = TypeVar("T")

_open: dict[str, SandboxThread] = {}
_opening = threading.Lock()


class SandboxThread:
    """A sandbox in a thread, opened at first use and shared by all dialogues with the same options.

    It is closed when Python exits, or by `close_all`.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tirjudge-sandbox", daemon=True)
        self._thread.start()
        self.sandbox: Sandbox = self.run(_entered(name, options))

    @classmethod
    def shared(cls, name: str, options: Mapping[str, Any]) -> SandboxThread:
        """Return the shared sandbox for these options.

        Raises what `open_sandbox` raises, and SandboxUnavailable if it cannot run here.
        """
        key = json.dumps([name, dict(options)], sort_keys=True)
        with _opening:
            if key not in _open:
                _open[key] = cls(name, options)
            return _open[key]

    @classmethod
    def close_all(cls) -> None:
        """Close the shared sandboxes and their processes; the next dialogue opens a new one."""
        with _opening:
            while _open:
                _open.popitem()[1].close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the sandbox's loop and wait for it in the calling thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the sandbox's loop and await it; cancellation cancels the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        self.run(self.sandbox.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


atexit.register(SandboxThread.close_all)


async def _entered(name: str, options: Mapping[str, Any]) -> Sandbox:
    sandbox = open_sandbox(name, **options)
    return await sandbox.__aenter__()
