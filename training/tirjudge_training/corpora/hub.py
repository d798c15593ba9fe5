"""Rows of datasets on the Hugging Face hub, streamed and checked against the columns of their source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from tirjudge.console_text import first_line
from tirjudge.data.sources import datasets_library, mirrored
from tirjudge_training.corpora.base import Columns, SourceCard

EVERY = "*"
SHOWN = 12
"""The most columns that an error message lists."""


class SourceUnavailable(RuntimeError):
    """A dataset, or a part of a dataset, that cannot be read; one line: name and reason."""


class SchemaChanged(RuntimeError):
    """A row without a column of the source; one line with row, column and fault."""


def hub_rows(
    card: SourceCard, columns: type[Columns], revision: str | None = None
) -> Iterator[tuple[str, Columns]]:
    """Stream (`configuration/split/number`, row) of all parts of a source; rows are numbered from 0.

    Raises SourceUnavailable, SchemaChanged.
    """
    for configuration, split in _parts(card, revision):
        where = f"{configuration or 'default'}/{split}"
        for number, row in enumerate(_stream(card, configuration, split, revision)):
            yield f"{where}/{number}", _validated(columns, row, f"{card.dataset}, {where}, row {number}")


def _parts(card: SourceCard, revision: str | None) -> Iterator[tuple[str | None, str]]:
    for configuration, split in card.parts:
        if configuration != EVERY:
            yield configuration, split
            continue
        library = _library(card)
        try:
            names = library.get_dataset_config_names(mirrored(card.dataset), revision=revision)
        except Exception as error:
            raise _unavailable(card.dataset, error) from error
        # Sorted, because the hub does not promise an order and row numbers depend on it.
        yield from ((name, split) for name in sorted(names))


def _stream(
    card: SourceCard, configuration: str | None, split: str, revision: str | None
) -> Iterator[Mapping[str, Any]]:
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
    except Exception as error:  # the errors of `datasets` and its HTTP client have no common base class
        raise _unavailable(f"{card.dataset} ({configuration or 'default'}, {split})", error) from error


def _library(card: SourceCard) -> Any:
    try:
        return datasets_library(card.dataset)
    except ValueError as error:
        raise SourceUnavailable(str(error)) from None


def _unavailable(name: str, error: Exception) -> SourceUnavailable:
    return SourceUnavailable(f"{name} cannot be read: {first_line(error)}")


def _validated(columns: type[Columns], row: Mapping[str, Any], where: str) -> Columns:
    try:
        return columns.model_validate(row)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        column = ".".join(map(str, fault["loc"]))
        reason = "no such column" if fault["type"] == "missing" else fault["msg"]
        there = ", ".join(list(row)[:SHOWN])
        raise SchemaChanged(f"{where}: {column}: {reason}; the row has {there}") from None
