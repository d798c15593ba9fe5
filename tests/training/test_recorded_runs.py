"""Run folders and corpora of an earlier version resume after recipe keys were added.

`recorded` holds the `config.toml` of two runs and of a corpus, as the first version wrote them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.run_settings import OtherSettings
from tirjudge_environments.types import Later
from tirjudge_training.corpora.config import CorpusConfig
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG, claim_folder
from tirjudge_training.rl.config import RlConfig

STORED = Path(__file__).parent / "recorded"


def recorded(name: str) -> dict[str, Any]:
    return tomllib.loads((STORED / f"{name}.toml").read_text())


def claim(folder: Path, name: str, config: BaseModel) -> None:
    """Resume the stored run `name`."""
    with RunFolder(folder) as run:
        run.write(CONFIG, (STORED / f"{name}.toml").read_bytes())
        claim_folder(run, config)


@pytest.mark.parametrize(
    ("name", "kind"), [("distill", Recipe), ("rationale", Recipe), ("corpus", CorpusConfig)]
)
def test_a_recorded_run_resumes(tmp_path: Path, name: str, kind: type[BaseModel]) -> None:
    """A key that was added since, and is not declared as later, would be named here."""
    claim(tmp_path, name, kind.model_validate(recorded(name)))
    assert within(recorded(name), tomllib.loads((tmp_path / CONFIG).read_text()))


def within(before: Any, now: Any) -> bool:
    """Return True if every recorded value is still there."""
    if isinstance(before, dict):
        return all(key in now and within(one, now[key]) for key, one in before.items())
    return bool(before == now)


class NewRlConfig(RlConfig):
    min_p: Annotated[float, Later(0.0)] = 0.1


class NewRecipe(Recipe):
    rl: NewRlConfig


def test_a_later_key_has_the_value_of_earlier_runs(tmp_path: Path) -> None:
    values = recorded("distill")
    claim(tmp_path, "distill", NewRecipe.model_validate({**values, "rl": {**values["rl"], "min_p": 0.0}}))
    assert tomllib.loads((tmp_path / CONFIG).read_text())["rl"]["min_p"] == 0.0
    with pytest.raises(OtherSettings, match=r"\(rl\.min_p was 0\.0 and is now 0\.1\)"):
        claim(tmp_path, "distill", NewRecipe.model_validate(values))


@pytest.mark.parametrize(
    ("name", "kind", "key", "value"),
    [
        ("distill", Recipe, "teacher.base_url", "http://other/v1"),
        ("distill", Recipe, "teacher.corrector.base_url", "http://other/v1"),
        ("distill", Recipe, "rl.health.kl", 2.0),
        ("distill", Recipe, "rl.server.concurrency", 3),
        ("distill", Recipe, "rates.devices", 4),
        ("distill", Recipe, "description", "Another sentence."),
        ("rationale", Recipe, "meta_judge.patience", 1.0),
        ("corpus", CorpusConfig, "generators.a.timeout", 9.0),
    ],
)
def test_a_key_of_the_place_may_change(
    tmp_path: Path, name: str, kind: type[BaseModel], key: str, value: object
) -> None:
    claim(tmp_path, name, kind.model_validate(changed(recorded(name), key, value)))


@pytest.mark.parametrize(
    ("name", "kind", "key", "value"),
    [
        ("distill", Recipe, "teacher.temperature", 0.5),
        ("distill", Recipe, "rl.beta", 0.001),
        ("rationale", Recipe, "meta_judge.max_tokens", 10),
        ("corpus", CorpusConfig, "generators.a.max_tokens", 10),
    ],
)
def test_any_other_key_may_not(
    tmp_path: Path, name: str, kind: type[BaseModel], key: str, value: object
) -> None:
    with pytest.raises(OtherSettings, match=rf"\({key} was "):
        claim(tmp_path, name, kind.model_validate(changed(recorded(name), key, value)))


def changed(values: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {**values, first: changed(values[first], rest, value) if rest else value}


def declared(kind: Any) -> Iterator[tuple[str, bool, Later]]:
    """Yield the name of each later field of a model, whether it may be None, and its mark."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            marks = (mark for mark in field.metadata if isinstance(mark, Later))
            yield from ((name, type(None) in get_args(field.annotation), mark) for mark in marks)
            yield from declared(field.annotation)
    else:
        for inner in get_args(kind):
            yield from declared(inner)


@pytest.mark.parametrize("kind", [Recipe, CorpusConfig, NewRecipe])
def test_a_later_key_that_may_be_none_was_none(kind: type[BaseModel]) -> None:
    """A file of TOML cannot tell a key that was None from a key that did not exist."""
    found = list(declared(kind))
    assert found if kind is NewRecipe else True
    assert [name for name, optional, mark in found if optional and mark.before is not None] == []
