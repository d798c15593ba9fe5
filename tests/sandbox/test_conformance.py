"""The built-in backends pass the conformance checks that third-party backends must pass."""

from __future__ import annotations

import pytest

from tirjudge_sandbox import Sandbox
from tirjudge_sandbox.testing import CHECKS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_built_in_backends_pass(box: Sandbox, check):
    await check(box)
