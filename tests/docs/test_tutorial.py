"""The tutorial runs from its first command to its decision, with the embedded model over one of its rows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks, commands
from tirjudge.cli import app

PAGE = ROOT / "docs" / "tutorial.md"
PAGES = (ROOT / "README.md", PAGE, ROOT / "docs" / "adapt.md")
"""The pages that a newcomer follows one after the other, in one folder."""
FEW = ("--limit", "1", "--generator-option", "processes=1")


def judged(page: Path) -> list[list[str]]:
    """Return the words of the commands of a page that judge a file of rows."""
    lines = [line.removeprefix("$ ") for block in blocks((page,)) for line in commands(block)]
    return [shlex.split(line) for line in lines if line.startswith("tirjudge judge ")]


def test_no_two_runs_of_the_first_pages_write_the_same_file() -> None:
    """A run into the file of other settings is refused."""
    written: dict[str, list[str]] = {}
    for words in (one for page in PAGES for one in judged(page)):
        # A run is repeated by the same command, which may also check its accuracy.
        settings = [word for word in words if word not in ("--min-accuracy", "0.9")]
        file = (
            settings[settings.index("--output") + 1]
            if "--output" in settings
            else f"{Path(words[2]).stem}.verdicts.jsonl"
        )
        assert written.setdefault(file, settings) == settings
    assert len(written) >= 4


@pytest.mark.slow
def test_readme_and_tutorial_in_one_folder_end_with_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    own = next(words for words in judged(PAGES[0]) if "examples/rows.csv" in words)
    assert CliRunner().invoke(app, [*own[1:], *FEW]).exit_code == 0
    steps = [
        command for block in blocks((PAGE,)) for command in commands(block) if command.startswith("tirjudge ")
    ]
    assert [step.split()[1] for step in steps] == ["judge", "show", "show", "reproduce", "report"]
    printed = []
    for step in steps:
        more = FEW if step.startswith("tirjudge judge") else ()
        done = CliRunner().invoke(app, [*shlex.split(step)[1:], *more])
        assert done.exit_code == 0, done.output
        printed.append(done.stdout)
    assert (tmp_path / "report.html").exists()
    assert "who won   response_a 100.0% [20.7%, 100.0%] of 1 row (1 won, 0 lost, 0 tied)" in printed[0]
