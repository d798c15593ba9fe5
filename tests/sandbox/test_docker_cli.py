"""`tirjudge sandbox build`: one command, and one line when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from tirjudge.cli import main; main()", "sandbox", "build"]


def build(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        COMMAND, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.docker
def test_an_image_that_is_already_there(docker_image):
    done = build()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"tirjudge sandbox: already there: tirjudge-sandbox {docker_image}\n"


def test_no_engine():
    done = build(DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 125
    (line,) = done.stderr.splitlines()
    assert line.startswith("tirjudge sandbox: the Docker engine cannot be reached")


def test_without_the_sdk():
    code = "import sys; sys.modules['docker'] = None\n" + COMMAND[2]
    command = [*COMMAND[:2], code, *COMMAND[3:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        125,
        "tirjudge sandbox: the docker sandbox needs the docker SDK: pip install 'tirjudge[docker]'\n",
    )
