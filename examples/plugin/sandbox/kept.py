"""A sandbox that records every program it runs, around the local one."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tirjudge_sandbox import Execution, Limits, Program
from tirjudge_sandbox.local import LocalSandbox


class KeptSandbox:
    """A `LocalSandbox` that appends the sources and outcomes of its programs to a JSON Lines file."""

    def __init__(self, *, record: str = "programs.jsonl", **options: Any):
        """`record` is the file; `options` are those of the local sandbox."""
        self._box, self._record = LocalSandbox(**options), Path(record)

    @property
    def capacity(self) -> int:
        return self._box.capacity

    async def __aenter__(self) -> Self:
        await self._box.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._box.__aexit__(kind, error, trace)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        execution = await self._box.run(program, limits)
        line = {"source": program.source, "status": execution.status, "stdout": execution.stdout}
        with self._record.open("a", encoding="utf-8") as record:
            record.write(json.dumps(line) + "\n")
        return execution
