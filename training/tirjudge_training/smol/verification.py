"""Runs of the demonstrations' programs in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tirjudge_sandbox import Limits, Program, Status, open_sandbox
from tirjudge_sandbox.base import Sandbox
from tirjudge_training.smol.rows import Draft

LIMITS = Limits(wall_seconds=10, cpu_seconds=3)
_BATCH = 400


def confirmed(drafts: Sequence[Draft], say: Callable[[str], None]) -> list[bool]:
    """Return for each draft whether its program prints exactly what the verifiers count.

    A draft without a program is confirmed. Raises SandboxUnavailable.
    """
    return asyncio.run(_confirmed(drafts, say))


async def _confirmed(drafts: Sequence[Draft], say: Callable[[str], None]) -> list[bool]:
    found: list[bool] = []
    async with open_sandbox("local", preload=()) as box:
        for start in range(0, len(drafts), _BATCH):
            batch = drafts[start : start + _BATCH]
            found += await asyncio.gather(*(_agrees(box, draft) for draft in batch))
            say(f"programs: {len(found):,} of {len(drafts):,} rows run")
    return found


async def _agrees(box: Sandbox, draft: Draft) -> bool:
    if draft.program is None:
        return True
    outputs = await asyncio.gather(*(_output(box, draft.program, bindings) for bindings in draft.bindings()))
    return outputs == draft.printed()


async def _output(box: Sandbox, source: str, bindings: dict[str, object]) -> str | None:
    ran = await box.run(Program(source=source, bindings=bindings), LIMITS)
    return ran.stdout.strip() if ran.status is Status.OK else None
