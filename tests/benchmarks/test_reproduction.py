"""The measurement of `tirjudge reproduce`, in a small size."""

from __future__ import annotations

import pytest

from benchmarks import reproduction


def test_planted_changes_are_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert reproduction.main(["--programs", "18", "--changes", "10"]) == 0
    rate, same, changed = capfd.readouterr().out.splitlines()
    assert rate.startswith("programs  18 in ")
    assert same == "same      18 of 18"
    assert changed == "changed   10 records, 10 found; 0 others reported"
