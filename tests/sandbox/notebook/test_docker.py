"""Notebooks and import policies in containers of a derived image, built as the documentation describes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest

from tirjudge_sandbox import ImportPolicy, Program, Status, open_sandbox
from tirjudge_sandbox.containers import client
from tirjudge_sandbox.containers.image import TAG
from tirjudge_sandbox.notebook.cells import CellStatus

pytestmark = [pytest.mark.docker, pytest.mark.slow]

DERIVED = "tirjudge-sandbox-notebooks"
DOCKERFILE = f"""
FROM {TAG}
USER 0
RUN pip install --no-cache-dir --root-user-action ignore ipykernel RestrictedPython
USER 65534:65534
"""


@pytest.fixture(scope="module")
def image(docker_image: str) -> Iterator[str]:
    def build(docker) -> None:
        docker.images.build(
            fileobj=context, custom_context=True, tag=DERIVED, network_mode="host", rm=True, forcerm=True
        )

    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        file = tarfile.TarInfo("Dockerfile")
        file.size = len(DOCKERFILE.encode())
        archive.addfile(file, io.BytesIO(DOCKERFILE.encode()))
    context.seek(0)
    client.call(build, seconds=600)
    yield DERIVED
    client.call(lambda docker: docker.images.remove(DERIVED), seconds=60)


async def test_a_notebook_runs_in_a_container(image: str) -> None:
    async with open_sandbox("jupyter", inside="docker", image=image, capacity=1, preload=()) as box:
        async with box.notebook(files={"given": b"ab"}, fetch=("out",)) as notebook:
            await notebook.run("text = open('given').read()")
            ran = await notebook.run("_ = open('out', 'w').write(text[::-1])\nprint(text)")
            assert (ran.status, ran.stdout) == (CellStatus.OK, "ab\n")
            slow = await notebook.run("import time; time.sleep(60)", wall_seconds=0.5)
            assert slow.status is CellStatus.TIME_LIMIT
            assert (await notebook.run("text")).displays == ({"text/plain": "'ab'"},)
            refused = await notebook.run("import socket; socket.socket(socket.AF_INET)")
            assert refused.error.name == "OSError"
            ended = await notebook.close()
        assert dict(ended.files) == {"out": b"ba"}
        assert (ended.isolation.placement, ended.isolation.missing) == ("container", ())


async def test_an_import_policy_applies_in_a_container(image: str) -> None:
    async with open_sandbox(
        "docker", image=image, capacity=1, preload=(), import_policy=ImportPolicy()
    ) as box:
        ran = await box.run(Program(source="import ssl"))
        assert (ran.status, ran.stderr.split(":")[0]) == (Status.ERROR, "PolicyError")
        assert (await box.run(Program(source="d = {1: 1}\nd[1] += 1\nprint(d)"))).stdout == "{1: 2}\n"
