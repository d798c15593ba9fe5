"""Fixtures: one sandbox for all tests of a module, so that an attack shares its worker with the next one."""

from __future__ import annotations

import fcntl
import gc
import os
import textwrap
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.sandbox.targets import MARKS, PLACEMENTS, READ_ONLY, Host
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status
from tirjudge_sandbox.containers import client, image
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox

Run = Callable[..., Awaitable[Execution]]

BACKENDS = {"local": LocalSandbox, "docker": DockerSandbox}

ANSWER = """
import os
try:
    os.kill(-1, 0)
except (ProcessLookupError, PermissionError):
    print(os.listdir(), "alone")
"""


@pytest.fixture(scope="session")
def docker_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the id of the sandbox's image; skip without an engine, unless DOCKER_HOST names one."""

    def build(docker: Any) -> str:
        built = image.build(docker, print)[0]
        # With an image, the engine removes the images that it is derived from and that have no name, and
        # another version of this package takes the usual name.
        docker.images.get(built).tag(image.TAG, "tests")
        return built

    try:
        # One of several pytest workers builds the image, and the others find it afterwards.
        with (tmp_path_factory.getbasetemp().parent / "docker-image.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return client.call(build, seconds=600)
    except client.EngineFailed as error:
        if "DOCKER_HOST" in os.environ:
            raise
        reason = str(error)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        # The SDK leaves its socket open when nobody answers.
        gc.collect()
    pytest.skip(reason)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    # Honest programs and `containers/` try Docker every time.
    params=["local", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow])],
)
async def box(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox with one worker and no preloaded modules, which would make it start slowly."""
    if request.param == "docker":
        request.getfixturevalue("docker_image")
    async with BACKENDS[request.param](capacity=1, preload=()) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def run(box: Sandbox) -> Run:
    """Run source text in `box`, as `running_in` describes."""
    return running_in(box)


def running_in(box: Sandbox) -> Run:
    """Return a function that runs source text.

    Its keywords are fields of `Program` or of `Limits`, and `cases`, which is a binding.
    """

    async def run_source(source: str, **fields: object) -> Execution:
        if "cases" in fields:
            fields["bindings"] = {"cases": fields.pop("cases")}
        of_program = {name: fields.pop(name) for name in list(fields) if hasattr(Program, name)}
        return await box.run(Program(source=textwrap.dedent(source), **of_program), Limits(**fields))

    return run_source


@pytest.fixture(
    scope="module",
    # `containers/` and `test_placements.py` try every time what the other placements stop.
    params=[pytest.param(name, marks=MARKS.get(name, ())) for name in PLACEMENTS],
)
def placement(request: pytest.FixtureRequest) -> str:
    """Name of a placement in which attacks are tried."""
    name: str = request.param
    if name == "docker":
        request.getfixturevalue("docker_image")
    return name


@pytest.fixture
def writable(placement: str) -> None:
    """Skip the test in placements where programs cannot write files."""
    if placement in READ_ONLY:
        pytest.skip("nothing is writable here")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def target(placement: str) -> AsyncIterator[Sandbox]:
    """A sandbox with one worker in the placement."""
    async with PLACEMENTS[placement]() as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sibling(placement: str, target: Sandbox) -> AsyncIterator[Sandbox]:
    """A second sandbox in the same placement."""
    async with PLACEMENTS[placement]() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Watch this host's state and place bait that an attack may look for."""
    host = Host(tmp_path_factory.mktemp("host"))
    yield host
    host.close()


@pytest_asyncio.fixture(loop_scope="module")
async def attack(target: Sandbox, host: Host) -> AsyncIterator[Run]:
    """Run an attack like `run`, then check that it left nothing behind and that the same worker answers."""
    before = host.state()
    yield running_in(target)
    answered = await target.run(Program(source=ANSWER), Limits())
    assert (answered.status, answered.stdout) == (Status.OK, "[] alone\n"), answered
    assert host.state() == before
