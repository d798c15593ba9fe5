"""A third-party plug-in package: found by name, run, and installed without conflicts with this one."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.miniature import TRAINED
from tests.tirjudge.judge_command import results
from tirjudge.judge import Judge
from tirjudge_sandbox.testing import CHECKS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
TIRJUDGE = ("-c", "from tirjudge.cli import main; main()")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which both packages were installed from their wheels."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command = [*pip, "--disable-pip-version-check", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(ROOT), str(EXAMPLE)], check=True, capture_output=True, text=True)
    return folder


def python(site: Path, folder: Path, *arguments: str) -> str:
    """Run Python in `folder` with the installed packages first on its path, and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed_files(site: Path, package: str) -> set[str]:
    (record,) = site.glob(f"{package}-*.dist-info/RECORD")
    with record.open(newline="") as lines:
        return {line[0] for line in csv.reader(lines)}


@pytest.mark.slow
def test_no_file_is_installed_twice(site: Path) -> None:
    ours, theirs = installed_files(site, "tirjudge"), installed_files(site, "house_judge")
    assert {"environments/checked.py", "sandbox/kept.py"} <= theirs
    assert "tirjudge_sandbox/base.py" in ours
    assert not ours & theirs


@pytest.mark.slow
def test_its_own_tests_pass_with_the_conformance_suites(site: Path, tmp_path: Path) -> None:
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:schemathesis")
    said = python(site, tmp_path, "-m", "pytest", *options, str(EXAMPLE / "tests"))
    assert f"{1 + len(CHECKS)} passed" in said


@pytest.mark.slow
def test_its_benchmark_is_judged_in_its_format_by_its_generator_in_its_sandbox(
    site: Path, tmp_path: Path
) -> None:
    assert "checked" in python(site, tmp_path, *TIRJUDGE, "formats")
    python(
        site, tmp_path, *TIRJUDGE, "eval", "short-answers", "--data", str(EXAMPLE / "short_answers.jsonl"),
        "--generator", "rule", "--model", str(EXAMPLE / "three_words.rule"),
        "--backend", "kept", "--backend-option", "record=programs.jsonl", "--no-cache",
    )  # fmt: skip
    judged = results(tmp_path / "short-answers.verdicts.jsonl")
    assert [(row["format"], row["scores"], row["correct"]) for row in judged] == [
        ("checked", [1.0, 0.0], 1.0)
    ] * 3
    ran = results(tmp_path / "programs.jsonl")
    assert sorted(program["stdout"] for program in ran) == ["False\n"] * 3 + ["True\n"] * 3


def test_a_generator_can_be_named_from_python() -> None:
    with Judge(str(TRAINED), generator="transformers", generator_options={"max_rows": 2}) as judge:
        assert judge.score("Write a reply that has at least 3 words.", "one two three").stop
    with pytest.raises(ValueError, match="no generator 'nosuch'"):
        Judge(str(TRAINED), generator="nosuch").score("p", "r")
    with pytest.raises(ValueError, match=r"^generator 'transformers': .*unexpected keyword argument 'rows'$"):
        Judge(str(TRAINED), generator_options={"rows": 1}).score("p", "r")
