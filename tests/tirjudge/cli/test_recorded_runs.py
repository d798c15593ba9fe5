"""Runs in the files of an earlier version resume after options were added, and ask for nothing again.

`recorded` holds files with one row of two, and a cache with all answers, as the first version wrote them. No
endpoint listens at their address.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.tirjudge.judge_command import invoke, results
from tirjudge.cli.judge import BatchRun
from tirjudge.cli.options import RunOptions
from tirjudge.data.sources import open_rows
from tirjudge.generation.cached import CACHE_VARIABLE
from tirjudge.storage.run_settings import Option, OtherSettings
from tirjudge_environments.types import Later

STORED = Path(__file__).parents[1] / "storage" / "recorded"
MODEL = ("--base-url", "http://127.0.0.1:18453/v1", "--model", "m", "--no-tools", "--cache")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(STORED, tmp_path / "run")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "completions.sqlite"))
    cache = sqlite3.connect(tmp_path / "completions.sqlite")
    cache.executescript((STORED / "completions.sql").read_text())
    cache.close()
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("judge", "rows.jsonl", "--samples", "2"), "rows.verdicts.jsonl"),
        (("bon", "rows.jsonl", "--pairwise"), "rows.bon.jsonl"),
        (("criteria", "rows.jsonl"), "rows.criteria.jsonl"),
    ],
)
def test_a_command_resumes_its_file_and_reuses_every_completion(
    folder: Path, words: tuple[str, ...], output: str
) -> None:
    first = (folder / output).read_bytes()
    calls = (folder / f"{output}.calls.jsonl").read_bytes()
    invoke(*words, *MODEL, folder=folder, code=0)
    assert (folder / output).read_bytes().startswith(first)
    assert len(results(folder / output)) == 2
    assert (folder / f"{output}.calls.jsonl").read_bytes() == calls
    other = invoke(*words, *MODEL, "--temperature", "0.5", folder=folder, code=2)
    assert "temperature was" in other.stderr


class NewOptions(RunOptions):
    """The options of a later version."""

    min_p: Annotated[float, Option("Judging", "--min-p"), Later(0.0)] = 0.0
    """An option that the file was recorded without."""


class Undeclared(RunOptions):
    """The options of a later version that does not say what earlier runs did."""

    min_p: Annotated[float, Option("Judging", "--min-p")] = 0.0
    """An option that the file was recorded without."""


def resumed(folder: Path, kind: type[RunOptions], **options: Any) -> list[dict[str, Any]]:
    given = kind(model="m", base_url=MODEL[1], tools=False, cache=True, samples=2, **options)
    output = folder / "rows.verdicts.jsonl"
    rows = open_rows(str(folder / "rows.jsonl"))
    run = BatchRun(command="judge", rows=rows, options=given, plan=given.plan(), output=output)
    assert run.run()
    return results(output)


def test_a_later_option_at_its_neutral_value_changes_nothing(folder: Path) -> None:
    calls = (folder / "rows.verdicts.jsonl.calls.jsonl").read_bytes()
    assert [row["verdict"] for row in resumed(folder, NewOptions)] == ["B", "B"]
    assert (folder / "rows.verdicts.jsonl.calls.jsonl").read_bytes() == calls


def test_a_later_option_with_another_value_is_refused(folder: Path) -> None:
    with pytest.raises(OtherSettings, match=r"\(min_p was 0\.0 and is now 0\.1\)"):
        resumed(folder, NewOptions, min_p=0.1)
    with pytest.raises(OtherSettings, match=r"\(min_p was null and is now 0\.0\)"):
        resumed(folder, Undeclared)


def test_criteria_are_not_added_to_a_file_with_other_settings(folder: Path) -> None:
    """The first version recorded none, so that the next start records them."""
    assert invoke("criteria", "rows.jsonl", *MODEL, "--limit", "1", folder=folder).returncode == 0
    recorded = json.loads((folder / "rows.criteria.jsonl.settings.json").read_text())["settings"]
    assert (recorded["most"], recorded["order"], recorded["model"]) == (8, "both", "m")
    other = invoke("criteria", "rows.jsonl", *MODEL, "--most", "3", folder=folder)
    assert (other.returncode, len(results(folder / "rows.criteria.jsonl"))) == (2, 1)
    assert "other settings (most was 8 and is now 3): give the same settings" in other.stderr
