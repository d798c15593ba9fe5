"""Recipe files: TOML read into a frozen pydantic model, with overrides, and stored in run folders.

Unknown keys are refused. A run folder keeps the configuration that it was started with, and is resumed with
that one only.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.run_settings import refuse_other_settings
from tirjudge.storage.settings_text import recorded_table, toml_value
from tirjudge_environments.registry import first_fault

Config = TypeVar("Config", bound=BaseModel)
CONFIG = "config.toml"
"""The file of a run folder with its resolved configuration."""
EXTENDS, ARMS = "extends", "arms"
"""Keys of a recipe file beyond the fields of the model."""
ABLATIONS = "ablations"
"""A table of shipped recipes: `[ablations.NAME]` overrides keys, and `ablations/NAME` is a recipe too."""
RECIPES, MIXTURES = "recipes", "corpora/mixtures"
"""Folders of this package with the shipped files: training recipes, and mixtures of corpora."""


class BadRecipe(ValueError):
    """A recipe cannot be used. The message is one line: where, what is wrong and what to do."""


@cache
def shipped(home: str = RECIPES) -> Mapping[str, Path]:
    """Return the files of the recipes of this package by name; ablations come last (`ablations/NAME`)."""
    files = sorted(Path(str(resources.files("tirjudge_training") / home)).glob("*.toml"))
    ablations = {f"{ABLATIONS}/{name}": path for path in files for name in _toml(path).get(ABLATIONS, ())}
    return {**{path.stem: path for path in files}, **dict(sorted(ablations.items()))}


def load(kind: type[Config], recipe: str, assignments: Sequence[str] = (), *, home: str = RECIPES) -> Config:
    """Load a shipped recipe by name, or a file by path, and apply `a.b=c` assignments. Raises BadRecipe.

    The right side of an assignment is parsed as TOML; anything that is not TOML (`a.b=adamw`) is a string,
    and nothing at all (`a.b=`) is None, which TOML cannot write. A recipe with `extends = "NAME"` overrides
    keys of the shipped recipe of that name, or of the file NAME in its own folder. Arms are ignored here, see
    `load_arms`.
    """
    return next(iter(_arms(kind, recipe, assignments, home)))[1]


def load_arms(
    kind: type[Config], recipe: str, assignments: Sequence[str] = (), only: Sequence[str] = ()
) -> dict[str, Config]:
    """Load the arms of a comparison by name: a table `[arms.NAME...]` overrides keys of the recipe.

    Returns the arms that `only` names, or all; an empty dict for a recipe without arms. Raises BadRecipe,
    also for an assignment whose key all of these arms set themselves.
    """
    arms = dict(islice(_arms(kind, recipe, assignments, RECIPES), 1, None))
    for name in only:
        if name not in arms:
            known = f"its arms are {', '.join(arms)}" if arms else "it has none"
            raise BadRecipe(f"--arm: the recipe {recipe} has no arm {name!r}; {known}")
    trained = {name: arm for name, arm in arms.items() if not only or name in only}
    own = _values(recipe, (), RECIPES)[2]
    for assignment in assignments:
        key = assignment.partition("=")[0]
        if trained and all(_sets(own.get(name), key) for name in trained):
            arm = next(iter(trained))
            raise BadRecipe(
                f"--set {assignment}: no effect, since the arm {arm} sets {key} itself; "
                f"write --set {ARMS}.{arm}.{assignment}"
            )
    return trained


def to_toml(config: BaseModel) -> str:
    """Return the whole configuration as TOML, defaults included. TOML has no null: None is left out."""
    return tomli_w.dumps(_without_none(config.model_dump(mode="json")))


def quoted(value: Any) -> str:
    """Return a text, or a list of texts, as TOML, for the right side of an assignment."""
    # TOML has no escapes of two halves, as JSON's are for characters such as emoji, and refuses a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def recorded_config(path: Path) -> dict[str, Any]:
    """Return the configuration in a file of a run folder; raises Damaged."""
    return recorded_table(path, "put the former file back, or choose another --output")


def claim_folder(folder: RunFolder, config: BaseModel) -> list[str]:
    """Store the configuration in a new folder, or compare it with the stored one; return how numbers moved.

    The configuration's fields say which values may change when a run resumes, see `refuse_other_settings`,
    which raises OtherSettings. TOML has no null: `Later` of a field that may be None must be None.
    """
    path, text, moved = folder.path / CONFIG, to_toml(config), list[str]()
    if path.exists():
        # Both sides are read from TOML, so that None and tuples compare equal.
        recorded = recorded_config(path)
        moved = refuse_other_settings(path, recorded, tomllib.loads(text), type(config))
    folder.write(CONFIG, text)
    return moved


def _arms(
    kind: type[Config], recipe: str, assignments: Sequence[str], home: str
) -> Iterator[tuple[str, Config]]:
    """Yield the recipe itself under the name "", and then all arms."""
    path, values, arms = _values(recipe, assignments, home)
    for name, over in {"": {}, **arms}.items():
        where = f"{path}: {ARMS}.{name}" if name else str(path)
        if name and not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise BadRecipe(f"{where!r}: an arm is named like its folder: use letters, digits, - and _ only")
        try:
            # A copy for every arm, because `_merged` changes its first argument.
            yield name, kind.model_validate(_merged(deepcopy(values), over))
        except ValidationError as error:
            raise BadRecipe(f"{where}: {_first(error, kind)}") from None


def _values(
    recipe: str, assignments: Sequence[str], home: str
) -> tuple[Path, dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the path of a recipe, the values after assignments, and the overrides of each arm."""
    path = shipped(home).get(recipe, Path(recipe))
    values = _read(recipe, path, (), home)
    known = [*values[ARMS]] if isinstance(values.get(ARMS), dict) else []
    for assignment in assignments:
        _assign(values, assignment)
    arms = values.pop(ARMS, {})
    if not isinstance(arms, dict) or not all(isinstance(arm, dict) for arm in arms.values()):
        raise BadRecipe(f"{path}: {ARMS}: write one table per arm, as in [{ARMS}.NAME.rl]")
    if unknown := sorted(arms.keys() - known):
        raise BadRecipe(f"--set {ARMS}.{unknown[0]}: the recipe {recipe} has no arm {unknown[0]!r}")
    return path, values, arms


def _sets(values: Any, key: str) -> bool:
    """Return True if nested tables have a value under a key such as `rl.steps`."""
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return not isinstance(values, dict)


def _read(name: str, path: Path, extending: tuple[Path, ...], home: str) -> dict[str, Any]:
    """Return the values of a recipe's file, merged over the values of the extended recipe."""
    if not path.is_file():
        # Without a cutoff there always is a nearest name, which the message needs.
        near = difflib.get_close_matches(str(path), list(shipped(home)), n=1, cutoff=0.0)
        raise BadRecipe(
            f"no recipe {str(path)!r}: neither a file nor a name that --list prints; "
            f"the nearest is {near[0]!r}"
        )
    if path in extending:
        raise BadRecipe(f"{path}: extends itself through {extending[-1]}")
    values = _toml(path)
    if path in shipped(home).values():
        ablations = values.pop(ABLATIONS, {})
        values = _merged(values, ablations.get(name.removeprefix(f"{ABLATIONS}/"), {}))
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise BadRecipe(f"{path}: {EXTENDS}: write the name of a recipe")
    # A name beside this file is tried last, so that a local file cannot hide a shipped recipe.
    below = _read(base, shipped(home).get(base, path.parent / base), (*extending, path), home)
    return _merged(below, values)


def _toml(path: Path) -> dict[str, Any]:
    try:
        # Editors on Windows put a mark before the first line.
        return toml_value(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise BadRecipe(f"{path}: {error}") from None


def _merged(values: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `over` into `values`: tables are merged key by key, other values are replaced."""
    for key, value in over.items():
        below = values.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            value = _merged(below, value)
        values[key] = value
    return values


def _assign(values: dict[str, Any], assignment: str) -> None:
    name, equals, text = assignment.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise BadRecipe(f"--set {assignment!r}: write it as key=value or table.key=value")
    try:
        value = toml_value(f"value = {text}")["value"] if text.strip() else None
    except ValueError:
        # An unquoted word such as `adamw` is a string, which saves quotes inside the shell's quotes.
        value = text
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise BadRecipe(f"--set {assignment!r}: {key!r} is a value, not a table")
    values[keys[-1]] = value


def _first(error: ValidationError, kind: type[BaseModel]) -> str:
    """Return the first fault in one line; for an unknown key with the nearest known one."""
    complaint = error.errors()[0]
    if complaint["type"] != "extra_forbidden":
        return first_fault(error)
    where = ".".join(map(str, complaint["loc"]))
    near = difflib.get_close_matches(where, list(_keys(kind)), n=1, cutoff=0.0)
    return f"unknown key {where!r}; the nearest known one is {near[0]!r}"


def _keys(kind: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, field in kind.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if inner is None:
            yield ".".join((*path, name))
        else:
            yield from _keys(inner, (*path, name))


def _without_none(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _without_none(value) for key, value in values.items() if value is not None}
    return [_without_none(value) for value in values] if isinstance(values, list) else values
