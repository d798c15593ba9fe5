"""Our own backend passes the checks that we ask of others."""

from __future__ import annotations

import pytest

from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.testing import CHECKS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_local(box: LocalSandbox, check):
    await check(box)
