"""The arms of a comparison: their recipes, their common warm-up, and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.miniature import MINI, RECIPES, assignments, inputs
from tests.training.test_cli import SMALL
from tests.training.train_command import train
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.heldout import Answer, summary
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load, load_arms
from tirjudge_training.run import comparison

RESEARCH = Path(__file__).parents[3] / "research" / "smol" / "recipes"
ARMS, FURTHER = str(RESEARCH / "smol-arms-ten.toml"), str(RESEARCH / "smol-further-ten.toml")


def arms(*assignments: str) -> dict[str, Recipe]:
    return load_arms(Recipe, str(RECIPES / "mini-arms.toml"), assignments)


def test_an_arm_overrides_keys_of_the_recipe() -> None:
    found = arms("rl.steps=3", "arms.text.rl.groups=8")
    assert list(found) == ["tools", "text", "mixture", "checkable", "reading"]
    assert [arm.data.no_tools for arm in found.values()] == [0.0, 1.0, 0.5, 0.0, 0.0]
    assert {arm.rl.steps for arm in found.values()} == {3}
    assert (found["text"].rl.groups, found["tools"].rl.groups) == (8, load(Recipe, MINI).rl.groups)
    assert found["reading"].data.weights == {"instruction-following": 0}
    assert load_arms(Recipe, MINI) == {}


def test_only_the_first_process_reads_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process may still be writing it when the second one has finished."""
    monkeypatch.setattr(Processes, "launched", lambda: Processes(rank=1))
    monkeypatch.setattr(comparison, "compare", lambda *_, **__: tmp_path / "comparison.md")
    ran = train("--recipe", FURTHER, "--output", str(tmp_path))
    assert (ran.exit_code, ran.stdout) == (0, ""), ran.stderr


def test_the_arms_that_a_run_names_are_its_only_ones() -> None:
    assert list(load_arms(Recipe, FURTHER, only=["sft", "rl"])) == ["rl", "sft"]
    bad = train("--recipe", FURTHER, "--plan", "--arm", "srt")
    assert bad.exit_code == 2
    assert "--arm" in bad.stderr
    assert bad.stderr.strip().endswith("has no arm 'srt'; its arms are rl, sft, rejection, rounds, form")
    named = train("--recipe", str(RECIPES / "mini-arms.toml"), "--plan", "--set", "arms.formm.rl.steps=1")
    assert "has no arm 'formm'" in named.stderr
    assert "has no arm 'sft'; it has none" in train("--recipe", "smol", "--arm", "sft").stderr


def test_an_assignment_without_effect_is_refused() -> None:
    """It is one line with the assignment that has one; it stays allowed if another arm takes the value."""
    refused = train("--recipe", FURTHER, "--plan", "--arm", "form", "--set", "model.base=judge")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "the arm form sets model.base itself; write --set arms.form.model.base=judge" in refused.stderr
    both = load_arms(Recipe, FURTHER, ["model.base=smol"], ["form", "rl"])
    assert {name: arm.model.base for name, arm in both.items()} == {"form": "smol", "rl": "smol"}
    (other,) = load_arms(Recipe, FURTHER, ["arms.form.model.base=tirjudge-smol"], ["form"]).values()
    assert other.model.base == "tirjudge-smol"


def test_arms_that_start_elsewhere_keep_their_own_model_and_rows() -> None:
    """The assignments are those of docs/smol.md; an arm's own keys win over them."""
    found = load_arms(Recipe, FURTHER, ["model.base=judge", "data.demonstrations="])
    assert {name: arm.model.base for name, arm in found.items()} == {
        **dict.fromkeys(("rl", "sft", "rejection", "rounds"), "judge"),
        "form": "smol",
    }
    assert [name for name, arm in found.items() if arm.data.demonstrations] == ["sft", "form"]
    assert {arm.data.families for arm in found.values()} == {load(Recipe, ARMS).data.families}


def test_an_arm_cannot_be_named_like_a_folder_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        "model.base = 'm'\ndata.train = 'r'\n[rl]\nsteps = 1\n[arms.'../a'.rl]\nsteps = 2"
    )
    with pytest.raises(BadRecipe, match="an arm is named like its folder"):
        load_arms(Recipe, str(tmp_path / "bad.toml"))


def finish(folder: Path, arm: str, model: str, correct: int, domain: str) -> None:
    answers = [
        Answer("tir-pairwise", "f", domain, number < correct, 1.0, 1, 1, 2, 2, 0) for number in range(10)
    ]
    stage = folder / arm / f"heldout-{model}"
    stage.mkdir(parents=True)
    (stage / "done.json").write_text(json.dumps(summary(answers)))


def test_the_table_has_every_arm(tmp_path: Path) -> None:
    found = {name: arm for name, arm in arms().items() if name in ("tools", "text")}
    for arm, before, after in (("tools", 5, 9), ("text", 4, 6)):
        finish(tmp_path, arm, "base", before, "safety")
        finish(tmp_path, arm, "rl", after, "safety")
    lines = list(comparison.table(found, tmp_path))
    assert lines[:2] == ["| arm | model | judge | all | safety | calls per verdict |", "|" + " --- |" * 6]
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| tools", "base"],
        ["| tools", "rl"],
        ["| text", "base"],
        ["| text", "rl"],
    ]
    assert lines[3] == (
        "| tools | rl | tir-pairwise | 90.0% [59.6%, 98.2%], n = 10 | 90.0% [59.6%, 98.2%], n = 10 | 2.00 |"
    )


def test_no_domain_breaks_the_table(tmp_path: Path) -> None:
    """Domains are columns of the rows of others."""
    found = {name: arm for name, arm in arms().items() if name == "text"}
    domain = "one\n# two|three\\|four\x1b[31m"
    finish(tmp_path, "text", "base", 4, domain)
    finish(tmp_path, "text", "rl", 6, domain)
    lines = list(comparison.table(found, tmp_path))
    assert (
        lines[0] == r"| arm | model | judge | all | one\n# two\|three\\\|four\x1b[31m | calls per verdict |"
    )
    assert all("\n" not in line for line in lines)


def test_the_table_knows_arms_that_found_nothing_to_demonstrate(tmp_path: Path) -> None:
    """A warm-up on the training rows is left out if they have no programs, as the rows of the miniature."""
    found = {"tools": arms(*assignments(), "data.demonstrations=train")["tools"]}
    assert "heldout-warmup" in [stage.name for stage in pipeline_of(found["tools"]).stages]
    finish(tmp_path, "tools", "base", 5, "safety")
    finish(tmp_path, "tools", "rl", 9, "safety")
    assert [line.split(" | ")[:2] for line in list(comparison.table(found, tmp_path))[2:]] == [
        ["| tools", "base"],
        ["| tools", "rl"],
    ]


@pytest.mark.slow
def test_two_arms_share_a_warm_up_and_are_in_one_table(tmp_path: Path) -> None:
    """The second arm copies the warm-up of the first; the repeated command trains nothing."""
    arms = "".join(f"[arms.{arm}.sft]\nlearning_rate = {rate}\n" for arm, rate in (("a", 1e-3), ("b", 1e-4)))
    shown = {"data.demonstrations": "package:smol/warmup.jsonl.xz", "demonstrations.rows": 4}
    tuned = {"warmup.sft.batch": 2, "warmup.sft.micro_batch": 1}
    small = {**inputs(), **SMALL, **shown, **tuned}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in small.items())
    (tmp_path / "two.toml").write_text(f"extends = {json.dumps(MINI)}\n{lines}{arms}")
    runs = [train("--recipe", str(tmp_path / "two.toml"), "--output", str(tmp_path / "run")) for _ in "12"]
    assert [one.exit_code for one in runs] == [0, 0], runs[0].stderr
    progress = [line.split(" ", 1)[1] for line in runs[0].stderr.splitlines()]
    assert "a/warmup: stage 2 of 5" in progress
    assert "b/warmup: done" in progress
    assert runs[0].stdout == runs[1].stdout == (tmp_path / "run" / "comparison.md").read_text()
    assert runs[0].stdout.count("\n| ") == 1 + 2 * 2 * 3
    repeated = [line for line in runs[1].stderr.splitlines() if "training rows" not in line]
    gains = [line for line in repeated if "/right in 6 held-out tasks" in line]
    assert len(gains) == 2
    assert all(line.endswith(": done") for line in repeated if line not in gains)
