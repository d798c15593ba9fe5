"""Fixtures of the sandbox's tests: a sandbox in each placement."""

from tests.sandbox.conftest import docker_image, placement, target

__all__ = ["docker_image", "placement", "target"]
