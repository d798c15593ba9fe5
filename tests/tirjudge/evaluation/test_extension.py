"""Formats and protocols of another package that cannot be used; docs/extending.md has good ones."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tirjudge.evaluation.stored_outputs import open_replay
from tirjudge.evaluation.stored_outputs.tirjudge_results import score_range

FORMAT = """
class Tosses:
    name, about, benchmark, protocols = "tosses", "files of tosses", "", ("tir",)

    def recognises(self, row):
        return "toss" in row


TOSSES = Tosses()
"""
SCORES = """
class Seven:
    scale = (1, 7)
"""
ENTRY_POINTS = """
[tirjudge.environments]
seven = mint_scores:Seven
[tirjudge.stored_outputs]
tosses = mint_format:TOSSES
"""


@pytest.fixture
def mint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed third-party package."""
    (tmp_path / "mint_format.py").write_text(FORMAT)
    (tmp_path / "mint_scores.py").write_text(SCORES)
    for name in ("mint_format", "mint_scores"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    metadata = tmp_path / "mint-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mint\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def test_a_row_that_fits_several_formats_asks_for_a_name(mint: Path) -> None:
    path = mint / "run.jsonl"
    path.write_text(json.dumps({"toss": 0, "preference": 1, "output_2": "x"}) + "\n")
    with pytest.raises(ValueError, match=r"several formats; name one with --format \(alpaca_eval, tosses\)"):
        open_replay(path)
    assert open_replay(path, format="tosses").format.name == "tosses"


def test_scores_of_a_format_of_another_package_have_its_scale(mint: Path) -> None:
    assert score_range("seven", criteria=False) == (1, 7)
    assert score_range("seven", criteria=True) == (0, 1), "a share of the criteria"
    assert score_range("six", criteria=False) is None
