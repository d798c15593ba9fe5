"""A process's sandbox with an event loop of its own, for code that has none, or several."""

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
    """Opened at the first use, shared by all dialogues with the same options.

    Closed when Python ends, or by `close_all`.
    """

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tirjudge-sandbox", daemon=True)
        self._thread.start()
        self.sandbox: Sandbox = self.run(_entered(name, options))

    @classmethod
    def shared(cls, name: str, options: Mapping[str, Any]) -> SandboxThread:
        """Raises what `open_sandbox` raises, and SandboxUnavailable where it cannot run."""
        key = json.dumps([name, dict(options)], sort_keys=True)
        with _opening:
            if key not in _open:
                _open[key] = cls(name, options)
            return _open[key]

    @classmethod
    def close_all(cls) -> None:
        """End the shared ones and their processes; the next dialogue opens another."""
        with _opening:
            while _open:
                _open.popitem()[1].close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits in the calling thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits in the calling event loop; cancelling it cancels the work."""
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
