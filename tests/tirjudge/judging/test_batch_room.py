"""The memory for files of a batch: rows wait for room, and one row that exceeds it is judged alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tirjudge.data.rows import Row
from tirjudge.judging.batch import BatchRunner, Failure, Plan, Room, Work

MIB = 1 << 20


class Counting:
    """Judges rows that take a moment, and remembers the most bytes of files that were held at once.

    A row without bytes is judged only once `without_files` such rows are in work.
    """

    def __init__(self, without_files: int) -> None:
        self.held = self.most = 0
        self.together = asyncio.Barrier(without_files)
        self.judged_rows: list[str] = []
        self.failures: list[Failure] = []

    async def judge(self, work: Work) -> str:
        self.held += work.size
        self.most = max(self.most, self.held)
        if work.size:
            await asyncio.sleep(0.05)
        else:
            async with asyncio.timeout(60):
                await self.together.wait()
        self.held -= work.size
        return work.task.id

    def expects(self, work: Work, task: Any) -> bool:
        return True

    def judged(self, work: Work, result: str) -> None:
        self.judged_rows.append(result)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)

    def stopped(self, work: Work, error: Exception) -> None:
        raise error


def row(number: int, name: str) -> Row:
    fields = {"id": f"r{number}", "prompt": "p", "responses": ["x", "y"], "files": [name, name]}
    return Row(f"rows:{number}", "", fields, Path.cwd())


async def test_rows_wait_for_room(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name, size in (("small", 2 * MIB), ("large", 9 * MIB), ("empty", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t").write_bytes(bytes(size))
    names = ["small"] * 8 + ["large"] * 2 + ["small"] * 3 + ["gone"] + ["empty"] * 8
    seen = Counting(without_files=8)
    runner = BatchRunner(seen.judge, seen, Plan(concurrency=32, first=2), room=Room(most=6 * MIB))
    assert await runner.run([row(number, name) for number, name in enumerate(names)]) == len(names)
    assert len(seen.judged_rows) == len(names) - 1
    assert ["gone: No such file or directory" in failure.reason for failure in seen.failures] == [True]
    # Both responses of a row have equal files.
    assert seen.most == 9 * MIB
