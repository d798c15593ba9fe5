"""Resumed runs: a result file, a run folder or a corpus goes on only with the settings that it began with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

_SHOWN = 5
"""Differences that a message names."""


class OtherSettings(ValueError):
    """A run was begun with other settings; the message is one line and names the first differences."""


def refuse_foreign_file(path: Path, companion: Path, command: str) -> None:
    """Raise ValueError for a file with content that lacks the companion which `tirjudge COMMAND` writes.

    Call it before the file is opened: opening drops a torn last line, which may be data of another program.
    """
    if path.exists() and path.stat().st_size and not companion.exists():
        raise ValueError(
            f"{path} exists and was not written by tirjudge {command}: "
            "choose another --output, or --overwrite it"
        )


def refuse_other_settings(
    place: Path,
    recorded: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    movable: Iterable[str] = (),
    remedy: str = "repeat them, or choose another --output",
) -> None:
    """Raise OtherSettings unless the wanted settings are the recorded ones.

    Settings in `movable`, written `a.b`, may differ; `*` stands for every table, as in `a.*.b`.
    """
    before, now = deepcopy(dict(recorded)), deepcopy(dict(wanted))
    for key in movable:
        _drop(before, key)
        _drop(now, key)
    found = list(_differences(before, now))
    if found:
        more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise OtherSettings(
            f"{place} was begun with other settings ({', '.join(found[:_SHOWN])}{more}): {remedy}"
        )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], table: str = "") -> Iterator[str]:
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{table}{key}.")
        elif old != new:
            yield f"{table}{key} was {json.dumps(old)} and is now {json.dumps(new)}"


def _drop(table: dict[str, Any], key: str) -> None:
    """Delete the key `a.b` from a table if it is there."""
    first, _, rest = key.partition(".")
    if not rest:
        table.pop(first, None)
        return
    for inner in table.values() if first == "*" else [table.get(first)]:
        if isinstance(inner, dict):
            _drop(inner, rest)
