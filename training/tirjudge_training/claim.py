"""A folder belongs to the configuration that it was begun with."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable

from pydantic import BaseModel

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.config import difference, to_toml

CONFIG = "config.toml"


def claim(folder: RunFolder, config: BaseModel, movable: Iterable[str]) -> str | None:
    """Write the configuration down; returns the first key in which the folder has another, then nothing is.

    Keys in `movable`, as `a.b`, may differ when work goes on; `*` stands for every table: `a.*.b`.
    """
    path, text = folder.path / CONFIG, to_toml(config)
    if path.exists():
        before, now = tomllib.loads(path.read_text(encoding="utf-8")), tomllib.loads(text)
        for key in movable:
            _leave_out(before, key)
            _leave_out(now, key)
        if (found := difference(before, now)) is not None:
            return found
    folder.write(CONFIG, text)
    return None


def _leave_out(table: JsonObject, key: str) -> None:
    first, _, rest = key.partition(".")
    if not rest:
        table.pop(first, None)
        return
    for inner in table.values() if first == "*" else [table.get(first)]:
        if isinstance(inner, dict):
            _leave_out(inner, rest)
