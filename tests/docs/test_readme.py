"""The README is short, and its commands print what it shows, with the embedded model."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks
from tests.tirjudge.smollm2 import needs_smollm2, use_converted
from tirjudge.cli import app

PAGE = ROOT / "README.md"


def shown() -> list[tuple[str, list[str]]]:
    """Return the README's commands with the lines of output below them."""
    found: list[tuple[str, list[str]]] = []
    for block in blocks((PAGE,)):
        for line in block.code.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line != "...":
                found[-1][1].append(line)
    return found


def test_the_readme_has_at_most_800_words() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 800


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_smollm2
def test_the_commands_print_the_lines_that_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_converted(tmp_path / "cache", monkeypatch)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    commands = shown()
    assert [command.split()[1] for command, _ in commands] == ["judge", "show"]
    for command, lines in commands:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
        printed = [line.rstrip() for line in done.stdout.splitlines()]
        assert [line for line in lines if line not in printed] == []
        assert [line for line in printed if line in lines][: len(lines)] == lines, "in this order"


@pytest.mark.slow
@needs_smollm2
def test_the_python_block_prints_what_its_comments_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_converted(tmp_path / "cache", monkeypatch)
    (code,) = [block.code for block in blocks((PAGE,)) if block.language == "python"]
    exec(compile(code, "README.md", "exec"), {})
    said = [line.rpartition("  # ")[2] for line in code.splitlines() if "print(" in line]
    assert capsys.readouterr().out.split() == said == ["B", "42"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_smollm2
def test_a_spreadsheets_file_gives_the_verdicts_of_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The own-file command on semicolons, a byte order mark, blank rows and empty trailing columns."""
    use_converted(tmp_path / "cache", monkeypatch)
    (command,) = [words for words, _ in shown() if "examples/rows.csv" in words]
    with (ROOT / "examples/rows.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    blank = [""] * (len(header) + 2)
    files = {"plain": None, "sheet": [[*row, "", ""] for row in (header, *rows)]}
    verdicts = {}
    for name, cells in files.items():
        folder = tmp_path / name
        (folder / "examples").mkdir(parents=True)
        if cells is None:
            (folder / "examples/rows.csv").write_bytes((ROOT / "examples/rows.csv").read_bytes())
        else:
            with (folder / "examples/rows.csv").open("w", encoding="utf-8-sig", newline="") as file:
                csv.writer(file, delimiter=";").writerows(
                    [cells[0], blank, *cells[1:4], blank, *cells[4:], blank]
                )
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
        judged = [json.loads(line) for line in (folder / "rows.verdicts.jsonl").read_text().splitlines()]
        verdicts[name] = {
            row["id"]: (row["verdict"], row["label"], row["correct"], row["sources"]) for row in judged
        }
    assert len(verdicts["plain"]) == len(rows) == 8
    assert verdicts["sheet"] == verdicts["plain"]
