"""One sandbox for all tests of a module: a program that attacks it shares a worker with the next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from tirjudge_sandbox import Execution, Limits, Program
from tirjudge_sandbox.local import LocalSandbox

Run = Callable[..., Awaitable[Execution]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def box() -> AsyncIterator[LocalSandbox]:
    """One worker, bare: numpy and sympy make starting slow and most tests do not want them."""
    async with LocalSandbox(capacity=1, preload=()) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run(box: LocalSandbox) -> Run:
    """Run source text; keywords are fields of `Limits`, or of `Program` where it has one of that name."""

    async def run_source(source: str, **fields: object) -> Execution:
        of_program = {name: fields.pop(name) for name in list(fields) if hasattr(Program, name)}
        return await box.run(Program(source=source, **of_program), Limits(**fields))

    return run_source
