"""The page on adapting the judge: its commands run one after the other on the 40 rows of the examples."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks, commands
from tests.tirjudge.smollm2 import needs_smollm2
from tirjudge.cli import app
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.results import next_commands

PAGE = ROOT / "docs" / "adapt.md"
MORE = {
    "train": (
        "--set rl.steps=1 --set rl.groups=2 --set rl.samples=2 --set rl.micro_batch=4 --set heldout.n=1 "
        "--set validation.n=1 --set warmup.sft.epochs=1"
    ),
    "judge": "--limit 1 --generator-option processes=1",
}
"""Words that are added to a command, so that it takes seconds."""


OUTPUT = [
    line
    for block in blocks((PAGE,))
    for line in block.code.splitlines()
    if line.startswith(("40 rows of ", "demonstrations: "))
]
"""Lines of the command's output that the page shows and that are the same in a shortened run."""


def test_the_page_shows_the_commands_that_a_run_ends_with() -> None:
    recipe = load(Recipe, "adapt", ["data.train=examples/labels.jsonl"])
    run = Path("runs/adapt-0")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        said = next_commands(recipe, run, run / "select" / "model")
    assert len(OUTPUT) == 2
    shown = [command for block in blocks((PAGE,)) for command in commands(block)]
    place = shown.index(said[0])
    assert shown[place : place + len(said)] == said


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
    assert [step[0] for step in steps] == ["train", "train", "judge", "judge", "compare", "report", "show"]
    printed = []
    for step in steps:
        done = CliRunner().invoke(app, [*step, *shlex.split(MORE.get(step[0], ""))])
        assert done.exit_code == 0, done.output
        printed.append(done.stdout + done.stderr)
    plan, trained, *_, compared, _, shown = printed
    assert "measured just now with 8 rollouts" in plan
    for line in OUTPUT:
        assert line in trained
    commands_said = [line.strip() for line in trained.splitlines() if line.startswith("  tirjudge ")]
    assert commands_said == [shlex.join(["tirjudge", *step]) for step in steps[2:6]]
    assert "right in 1 held-out tasks: base " in trained
    assert "runs/adapt-0/select/model\n" in trained
    assert "accuracy" in compared
    assert "verdict: response" in shown
    assert (tmp_path / "runs" / "adapt-0" / "training.html").stat().st_size > 10_000
