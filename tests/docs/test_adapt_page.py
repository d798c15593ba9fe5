"""The page on adapting the judge: its commands run one after the other on the 40 rows of the examples."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks, commands
from tests.tirjudge.smollm2 import needs_smollm2
from tirjudge.cli import app

PAGE = ROOT / "docs" / "adapt.md"
MORE = {
    "train": (
        "--set rl.steps=1 --set rl.groups=2 --set rl.samples=2 --set rl.micro_batch=4 --set heldout.n=1 "
        "--set validation.n=1 --set demonstrations.rows=2 --set warmup.sft.epochs=1"
    ),
    "judge": "--limit 1 --generator-option processes=1",
}
"""Words that are added to a command, so that it takes seconds."""


def test_the_page_has_at_most_900_words() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 900


@pytest.mark.slow
@pytest.mark.timeout(1200)
@needs_smollm2
def test_the_page_ends_with_a_comparison_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    steps = [
        shlex.split(command)[1:]
        for block in blocks((PAGE,))
        for command in commands(block)
        if command.startswith("tirjudge ")
    ]
    assert [step[0] for step in steps] == ["train", "train", "judge", "judge", "compare", "show", "report"]
    printed = []
    for step in steps:
        done = CliRunner().invoke(app, [*step, *shlex.split(MORE.get(step[0], ""))])
        assert done.exit_code == 0, done.output
        printed.append(done.stdout + done.stderr)
    plan, trained, *_, compared, shown, _ = printed
    for line in ("8 rows of 7 prompts held out to measure the judge", "measured just now with 8 rollouts"):
        assert line in plan
    assert "2 of 2 programs are learned" in trained
    assert "right in 1 held-out tasks: base " in trained
    assert trained.endswith("runs/adapt-0/select/model\n") or "runs/adapt-0/select/model\n" in trained
    assert "accuracy" in compared
    assert "verdict: response" in shown
    assert (tmp_path / "training.html").stat().st_size > 10_000
