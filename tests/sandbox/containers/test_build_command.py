"""`tirjudge sandbox build`: builds the image with one command, and reports a failure in one line."""

from __future__ import annotations

import pytest

from tests.command import tirjudge


@pytest.mark.docker
def test_an_existing_image_is_not_built_again(docker_image):
    done = tirjudge("sandbox", "build")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"tirjudge sandbox: already built: tirjudge-sandbox {docker_image}\n"


def test_a_missing_engine_is_reported_in_one_line():
    done = tirjudge("sandbox", "build", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert done.returncode == 125
    (line,) = done.stderr.splitlines()
    assert line.startswith("tirjudge sandbox: the Docker engine cannot be reached")
