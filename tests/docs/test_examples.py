"""The page of whole jobs: every job runs, and prints the lines that the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT, Block, blocks, commands
from tests.tirjudge.endpoint_server import chat, serving
from tests.tirjudge.judge_command import command
from tests.tirjudge.smollm2 import needs_smollm2, use_converted

PAGE = ROOT / "docs" / "examples.md"
PAGES = (ROOT / "README.md", PAGE, ROOT / "docs" / "adapt.md")
"""The pages that a newcomer follows one after the other, in one folder."""
GRPO = ROOT / "examples" / "grpo.py"


def job(number: int) -> list[Block]:
    """Return the code blocks of a job, from 1."""
    starts = [
        line for line, text in enumerate(PAGE.read_text().splitlines(), 1) if text.startswith("## ")
    ] + [10**6]
    return [one for one in blocks((PAGE,)) if starts[number - 1] < one.line < starts[number]]


def typed(number: int) -> list[list[str]]:
    """Return the words of a job's commands of tirjudge."""
    found = [shlex.split(one) for block in job(number) for one in commands(block)]
    return [words for words in found if words[0] == "tirjudge"]


def run(words: list[str]) -> list[str]:
    done = command(*words[1:], code=0)
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path


def test_a_job_has_at_most_40_lines_of_code_and_output() -> None:
    lengths = [sum(len(block.code.splitlines()) for block in job(number)) for number in range(1, 5)]
    lengths[2] += len(GRPO.read_text().splitlines())
    assert min(lengths) > 0
    assert max(lengths) <= 40


def test_no_two_runs_of_the_first_pages_write_the_same_file() -> None:
    """A run into the file of other settings is refused."""
    written: dict[str, list[str]] = {}
    lines = [shlex.split(line) for page in PAGES for block in blocks((page,)) for line in commands(block)]
    for words in (one for one in lines if one[:2] == ["tirjudge", "judge"]):
        # A run is repeated by the same command, which may also check its accuracy.
        settings = [word for word in words if word not in ("--min-accuracy", "0.9")]
        named = [words[place + 1] for place, word in enumerate(words) if word in ("-o", "--output")]
        file = named[0] if named else f"{Path(words[2]).stem}.verdicts.jsonl"
        assert written.setdefault(file, settings) == settings
    assert len(written) >= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_smollm2
def test_two_prompts_are_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_converted(folder / "cache", monkeypatch)
    _, session = job(1)
    shown = [line for line in session.code.splitlines() if not line.startswith("$ ")]
    printed = [line for words in typed(1) for line in run(words)]
    assert [line for line in shown if line not in printed] == []
    assert (folder / "report.html").exists()


def test_the_gate_of_the_page_is_that_of_the_workflow() -> None:
    """The workflow's own test runs it."""
    (workflow,) = yaml.safe_load((ROOT / "examples/pull-request.yml").read_text())["jobs"].values()
    steps = [shlex.split(step["run"]) for step in workflow["steps"] if "run" in step]
    assert len(typed(2)) == 3
    assert all(any(step[: len(words)] == words for step in steps) for words in typed(2))


@pytest.mark.slow
@pytest.mark.timeout(900)
@needs_smollm2
def test_grpo_ends_with_a_curve(folder: Path) -> None:
    """One step of two completions, in place of 24 steps of eight."""
    done = subprocess.run([sys.executable, GRPO, "1", "2"], capture_output=True, text=True, check=True)
    assert re.search(r"^  1 +\d+% #*$", done.stdout, re.MULTILINE), done.stdout
    assert "'rewards/judge_group/mean': '0.5'" in done.stdout
    assert "'judge/no_verdict': '0'" in done.stdout


def test_a_workspace_is_judged_by_a_program_that_opens_its_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripted model writes the page's program."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-tests")
    session, program = job(4)

    def reading(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) == 1:
            return chat(f"```python\n{program.code}```\n")
        won = "A 1 of 1\nB 0 of 1" in body["messages"][-1]["content"]
        return chat(f"<preference>{'A' if won else 'B'}</preference>")

    judge, show = typed(4)
    with serving() as server:
        server.script = reading
        place = judge.index("--base-url") + 1
        printed = run([*judge[:place], server.url, *judge[place + 1 :], "--order", "given"])
    shown = [line for line in session.code.splitlines() if not line.startswith("$ ")]
    assert [line for line in printed if line in shown] == shown, printed
    assert {"    A 1 of 1", "    B 0 of 1"} <= set(run(show))
