"""The rows of a source, streamed from the hub and checked against the columns that it is read by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tirjudge.console_text import first_line
from tirjudge.data.sources import datasets_library, mirrored
from tirjudge_training.corpora.base import Columns, SourceCard

EVERY = "*"
SHOWN = 12
"""Columns that a message names at most."""


class SourceGone(RuntimeError):
    """A data set, or a part of it, that cannot be read; one line that says which and why."""


class SchemaChanged(RuntimeError):
    """A row without the columns that its source is read by; one line: where, which column, what is wrong."""


def rows(
    card: SourceCard, columns: type[Columns], revision: str | None = None
) -> Iterator[tuple[str, Columns]]:
    """(`configuration/split/number`, row) of all of a source's parts, streamed; rows count from 0.

    Raises SourceGone, SchemaChanged.
    """
    for configuration, split in _parts(card, revision):
        where = f"{configuration or 'default'}/{split}"
        for number, row in enumerate(_stream(card, configuration, split, revision)):
            yield f"{where}/{number}", _checked(columns, row, f"{card.dataset}, {where}, row {number}")


def _parts(card: SourceCard, revision: str | None) -> Iterator[tuple[str | None, str]]:
    for configuration, split in card.parts:
        if configuration != EVERY:
            yield configuration, split
            continue
        library = _library(card)
        try:
            names = library.get_dataset_config_names(mirrored(card.dataset), revision=revision)
        except Exception as error:
            raise _gone(card.dataset, error) from error
        yield from ((name, split) for name in sorted(names))


def _stream(
    card: SourceCard, configuration: str | None, split: str, revision: str | None
) -> Iterator[Mapping[str, Any]]:
    """What the library raises is of the data set or the way to it; its errors have no common root."""
    library = _library(card)
    try:
        yield from library.load_dataset(
            mirrored(card.dataset),
            configuration,
            split=split,
            data_files=card.files,
            streaming=True,
            revision=revision,
        )
    except Exception as error:
        raise _gone(f"{card.dataset} ({configuration or 'default'}, {split})", error) from error


def _library(card: SourceCard) -> Any:
    try:
        return datasets_library(card.dataset)
    except ValueError as error:
        raise SourceGone(str(error)) from None


def _gone(name: str, error: Exception) -> SourceGone:
    return SourceGone(f"{name} cannot be read: {first_line(error)}")


def _checked(columns: type[Columns], row: Mapping[str, Any], where: str) -> Columns:
    try:
        return columns.model_validate(row)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        column = ".".join(map(str, fault["loc"]))
        reason = "no such column" if fault["type"] == "missing" else fault["msg"]
        there = ", ".join(list(row)[:SHOWN])
        raise SchemaChanged(f"{where}: {column}: {reason}; the row has {there}") from None
