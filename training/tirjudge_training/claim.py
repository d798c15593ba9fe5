"""The configuration stored in a run folder, which refuses to be resumed with a different one."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable

from pydantic import BaseModel

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.config import difference, to_toml, with_new_names

CONFIG = "config.toml"


def claim(folder: RunFolder, config: BaseModel, movable: Iterable[str]) -> str | None:
    """Store the configuration in a new folder, or compare it with the stored one.

    Returns the first key that differs, and then writes nothing; None if the folder may be used. Keys in
    `movable`, written `a.b`, may change when a run is resumed; `*` stands for every table, as in `a.*.b`.
    """
    path, text = folder.path / CONFIG, to_toml(config)
    if path.exists():
        before = with_new_names(tomllib.loads(path.read_text(encoding="utf-8")))
        now = tomllib.loads(text)
        for key in movable:
            _drop(before, key)
            _drop(now, key)
        if (found := difference(before, now)) is not None:
            return found
    folder.write(CONFIG, text)
    return None


def _drop(table: JsonObject, key: str) -> None:
    first, _, rest = key.partition(".")
    if not rest:
        table.pop(first, None)
        return
    for inner in table.values() if first == "*" else [table.get(first)]:
        if isinstance(inner, dict):
            _drop(inner, rest)
