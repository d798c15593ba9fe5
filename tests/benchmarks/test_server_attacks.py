"""The measurement of an honest caller under attack, shortened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.server_attacks import measured


@pytest.mark.slow
async def test_an_honest_caller_is_served_while_another_declares_bodies() -> None:
    server = str(Path(sys.executable).with_name("tirjudge"))
    name, n, *latencies, failed, _, ended = await measured("declared", 0.5, server, one_token=False)
    assert (name, int(n) > 0, failed, ended != "> 40") == ("declared", True, "0", True)
    median, longest, _, _, ping, longest_ping = map(float, latencies)
    assert 0 < median <= longest
    assert 0 < ping <= longest_ping
