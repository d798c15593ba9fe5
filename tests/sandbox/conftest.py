"""One sandbox for all tests of a module: a program that attacks it shares a worker with the next."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tirjudge_sandbox import Execution, Limits, Program, Sandbox
from tirjudge_sandbox.containers import engine, image
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox

Run = Callable[..., Awaitable[Execution]]

BACKENDS = {"local": LocalSandbox, "docker": DockerSandbox}


@pytest.fixture(scope="session")
def docker_image() -> str:
    """Id of the sandbox's image. An engine that DOCKER_HOST names must answer; another may be missing."""
    try:
        return engine.call(lambda client: image.build(client, print), seconds=600)[0]
    except engine.EngineFailed as error:
        if "DOCKER_HOST" in os.environ:
            raise
        reason = str(error)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        # The SDK leaves its socket open when nobody answers.
        gc.collect()
    pytest.skip(reason)


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=["local", pytest.param("docker", marks=pytest.mark.docker)]
)
async def box(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """One worker, bare: numpy and sympy make starting slow and most tests do not want them."""
    if request.param == "docker":
        request.getfixturevalue("docker_image")
    async with BACKENDS[request.param](capacity=1, preload=()) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run(box: Sandbox) -> Run:
    """Run source text; keywords are fields of `Limits`, or of `Program` where it has one of that name."""

    async def run_source(source: str, **fields: object) -> Execution:
        of_program = {name: fields.pop(name) for name in list(fields) if hasattr(Program, name)}
        return await box.run(Program(source=source, **of_program), Limits(**fields))

    return run_source
