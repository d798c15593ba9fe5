"""Workspaces labelled by program are judged right, and hostile ones reach no verdict and no file."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.workspaces import hostile
from benchmarks.workspaces.__main__ import judged_pairs


def test_pairs_of_every_kind_are_decided_by_programs_that_run_again(tmp_path: Path) -> None:
    assert judged_pairs(tmp_path, count=4, seed=1) == 0


@pytest.mark.slow
def test_hostile_workspaces_are_refused_or_lose(tmp_path: Path) -> None:
    assert hostile.judged(tmp_path) == 0


def test_the_same_judge_is_fooled_by_a_listing_without_indents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("tirjudge_environments.files.listing"), "_INDENT", "")
    assert hostile.judged(tmp_path, ["verdict tags, outputs and headings"]) == 1
