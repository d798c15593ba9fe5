"""Recipes: typed, frozen, read from TOML, every key overridable, and no unknown key let through."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tirjudge_environments.registry import first_fault

Config = TypeVar("Config", bound=BaseModel)
EXTENDS, ARMS = "extends", "arms"
"""The keys that a recipe file may have beside those of its configuration."""
RECIPES, MIXTURES = "recipes", "corpora/mixtures"
"""Where configurations of a kind lie in this package: runs, corpora."""


class BadRecipe(ValueError):
    """A recipe that cannot be used; the text is one line: where, what is wrong, what to do."""


def shipped(home: str = RECIPES) -> dict[str, Path]:
    """The recipes that come with the package, by name; those in folders, `ablations/...`, come last."""
    folder = Path(str(resources.files("tirjudge_training") / home))
    found = ((path.relative_to(folder).with_suffix("").as_posix(), path) for path in folder.rglob("*.toml"))
    return dict(sorted(found, key=lambda one: ("/" in one[0], one[0])))


def load(kind: type[Config], recipe: str, assignments: Sequence[str] = (), *, home: str = RECIPES) -> Config:
    """The recipe called, or in the file, `recipe`, with `a.b=c` assignments over it. Raises BadRecipe.

    The right side of an assignment is TOML; what is not (`a.b=adamw`) is taken as text. A recipe that says
    `extends = "NAME"` is laid over the shipped recipe, or the file beside it, of that name. Its arms are left
    out: see `load_arms`.
    """
    return next(iter(_arms(kind, recipe, assignments, home)))[1]


def load_arms(kind: type[Config], recipe: str, assignments: Sequence[str] = ()) -> dict[str, Config]:
    """The arms of a comparison by name: each a table `[arms.NAME...]`, laid over the rest of the recipe.

    Empty for a recipe without arms. Raises BadRecipe.
    """
    return dict(islice(_arms(kind, recipe, assignments, RECIPES), 1, None))


def to_toml(config: BaseModel) -> str:
    """The whole configuration, defaults included; keys whose value is None are left out."""
    return "\n".join(_tables(config.model_dump(mode="json"), ())).lstrip("\n") + "\n"


def difference(old: Mapping[str, Any], new: Mapping[str, Any], path: tuple[str, ...] = ()) -> str | None:
    """The first key, as `a.b`, whose value is not the same in two configurations; None if there is none."""
    for key in [*new, *(key for key in old if key not in new)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            if found := difference(before, after, (*path, key)):
                return found
        elif before != after:
            return ".".join((*path, key))
    return None


def _arms(
    kind: type[Config], recipe: str, assignments: Sequence[str], home: str
) -> Iterator[tuple[str, Config]]:
    """The recipe itself, without a name, and then its arms."""
    path = shipped(home).get(recipe, Path(recipe))
    values = _read(path, (), home)
    for assignment in assignments:
        _assign(values, assignment)
    arms = values.pop(ARMS, {})
    if not isinstance(arms, dict) or not all(isinstance(arm, dict) for arm in arms.values()):
        raise BadRecipe(f"{path}: {ARMS}: write a table for each arm, as in [{ARMS}.NAME.rl]")
    for name, over in {"": {}, **arms}.items():
        where = f"{path}: {ARMS}.{name}" if name else str(path)
        if name and not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_-]*", name):
            raise BadRecipe(f"{where!r}: an arm's name is that of its folder: letters, digits, - and _")
        try:
            yield name, kind.model_validate(_laid_over(deepcopy(values), over))
        except ValidationError as error:
            raise BadRecipe(f"{where}: {_first(error, kind)}") from None


def _read(path: Path, extending: tuple[Path, ...], home: str) -> dict[str, Any]:
    """A file's values, over those of the recipe that it extends."""
    if not path.is_file():
        near = difflib.get_close_matches(str(path), list(shipped(home)), n=1, cutoff=0.0)
        raise BadRecipe(
            f"no recipe {str(path)!r}: no file, nor one that --list names; the nearest is {near[0]!r}"
        )
    if path in extending:
        raise BadRecipe(f"{path}: extends itself, by way of {extending[-1]}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRecipe(f"{path}: {error}") from None
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise BadRecipe(f"{path}: {EXTENDS}: write the name of a recipe")
    below = _read(shipped(home).get(base, path.parent / base), (*extending, path), home)
    return _laid_over(below, values)


def _laid_over(values: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables key by key, anything else as a whole."""
    for key, value in over.items():
        below = values.get(key)
        if isinstance(value, Mapping) and isinstance(below, dict):
            value = _laid_over(below, value)
        values[key] = value
    return values


def _assign(values: dict[str, Any], assignment: str) -> None:
    name, equals, text = assignment.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or not all(keys):
        raise BadRecipe(f"--set {assignment!r}: write it as key=value or table.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for key in keys[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise BadRecipe(f"--set {assignment!r}: {key!r} is a value and no table")
    values[keys[-1]] = value


def _first(error: ValidationError, kind: type[BaseModel]) -> str:
    """The first complaint in one line; of an unknown key also the nearest known one."""
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


def _tables(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Plain keys first, as TOML wants it, then a table for each mapping."""
    if path:
        yield f"\n[{'.'.join(json.dumps(part) if not part.isidentifier() else part for part in path)}]"
    for key, value in values.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _tables(value, (*path, key))
