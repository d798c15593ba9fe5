"""Recipe files and assignments reach the configuration, and each mistake is reported in one line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load, quoted, to_toml


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    learning_rate: float = 1e-6
    note: str = 'a "quoted" \\ é line\nbreak'
    limit: int | None = None


class Outer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    seed: int
    names: tuple[str, ...] = ("a", "b")
    rl: Inner = Inner()
    warmup: Inner | None = None


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "mine.toml"
    path.write_text("seed = 3\n[rl]\nlearning_rate = 2e-4\n")
    return str(path)


def test_assignments_override_the_file(recipe: str) -> None:
    config = load(Outer, recipe, ["rl.learning_rate=5e-5", "rl.note=plain text", "warmup.limit=7", "seed=9"])
    assert config == Outer(seed=9, rl=Inner(learning_rate=5e-5, note="plain text"), warmup=Inner(limit=7))


@pytest.mark.parametrize("text", ["plain", "rows \N{GRINNING FACE}.jsonl", 'a "b" \\ c', "tab\t, delete\x7f"])
def test_an_assignment_of_a_quoted_text_has_this_text(recipe: str, text: str) -> None:
    """The short options of the commands, such as `--data FILE`, become such assignments."""
    config = load(Outer, recipe, [f"rl.note={quoted(text)}", f"names={quoted([text])}"])
    assert (config.rl.note, config.names) == (text, (text,))


def test_the_resolved_recipe_round_trips(recipe: str) -> None:
    config = load(Outer, recipe, ["warmup.limit=1"])
    assert Outer.model_validate(tomllib.loads(to_toml(config))) == config


def test_an_empty_assignment_takes_an_optional_key_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("seed = 3\n[rl]\nlimit = 5\n[warmup]\nlimit = 1\n")
    config = load(Outer, str(path), ["rl.limit=", "warmup="])
    assert config == Outer(seed=3, rl=Inner(limit=None), warmup=None)
    with pytest.raises(BadRecipe, match="seed: Input should be a valid integer"):
        load(Outer, str(path), ["seed="])


@pytest.mark.parametrize(
    "assignment",
    [
        "rl.learning_rate=inf",
        "rl.beta=inf",
        "rl.entropy_bonus=inf",
        "rl.eta=inf",
        "rl.temperature=inf",
        "rl.cpu_seconds=inf",
        "rl.program_cpu_seconds=inf",
        "rl.epochs=inf",
        "sft.learning_rate=inf",
        "model.lora.alpha=inf",
        "threads=100000000000",
    ],
)
def test_a_number_that_nothing_can_be_computed_with_is_refused(assignment: str) -> None:
    """Training would end in a traceback, or in weights that are not finite."""
    key = assignment.partition("=")[0]
    with pytest.raises(BadRecipe, match=rf": {key}: Input should be (a finite number|less than)"):
        load(Recipe, "smol", [assignment])
    load(Recipe, "smol", ["rl.max_grad_norm=inf", "rl.epsilon_high=inf"])  # clips nothing


def test_a_recipe_that_is_not_toml_or_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("seed = = 1")
    with pytest.raises(BadRecipe, match=r"bad\.toml: "):
        load(Outer, str(tmp_path / "bad.toml"))
    with pytest.raises(BadRecipe, match=r"no recipe 'smoll': .*; the nearest is 'smol'"):
        load(Outer, "smoll")


def test_a_mark_before_the_first_line_is_no_part_of_a_recipe(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "windows.toml").write_text(Path(recipe).read_text(), encoding="utf-8-sig")
    assert load(Outer, str(tmp_path / "windows.toml")) == load(Outer, recipe)


def test_a_recipe_overrides_the_one_it_extends(recipe: str, tmp_path: Path) -> None:
    (tmp_path / "middle.toml").write_text('extends = "mine.toml"\n[rl]\nlimit = 5\n[warmup]\nlimit = 1\n')
    (tmp_path / "last.toml").write_text('extends = "middle.toml"\nseed = 4\n[rl]\nlimit = 6\n')
    config = load(Outer, str(tmp_path / "last.toml"), ["warmup.limit=2"])
    assert config == Outer(seed=4, rl=Inner(learning_rate=2e-4, limit=6), warmup=Inner(limit=2))


def test_a_recipe_that_extends_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "self.toml").write_text('extends = "self.toml"')
    with pytest.raises(BadRecipe, match=r"self\.toml: extends itself"):
        load(Outer, str(tmp_path / "self.toml"))
