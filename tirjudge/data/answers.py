"""Answers of several models, one file for each, joined into rows that compare two models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow, Row
from tirjudge.data.sources import RowSource
from tirjudge.data.suggestions import known_place
from tirjudge_environments.tasks import RowError
from tirjudge_environments.tasks.columns import DEFAULT_COLUMNS, Columns, column_named


@dataclass(frozen=True, slots=True)
class _Answer:
    row: Row
    """The row without the columns of the fields below."""
    id: str
    prompt: str
    """As JSON, by which prompts are compared."""
    text: Any


class JoinedAnswers:
    """Rows with the answers of two models, or with `together` of all, to one prompt.

    Answers belong together by the ids of their rows if every file has some in common with the first one, and
    equal ids have equal prompts; otherwise by their prompts, of which equal ones are taken in order. The
    columns of the first file are kept. `notes` counts the rows that belong to none of another file. Raises
    ValueError, in one line, for a file without prompts or answers, and if no rows belong together.
    """

    def __init__(
        self, files: Mapping[str, RowSource], columns: Columns = DEFAULT_COLUMNS, *, together: bool = False
    ) -> None:
        """`files` maps the name of each model to its rows; `columns` names their prompts and answers."""
        self.name = ", ".join(file.name for file in files.values())
        self._files, self._columns = files, columns
        self._bad: list[BadRow] = []
        read = {name: self._read(file) for name, file in files.items()}
        by_id = [{one.id: one for one in answers if one.id} for answers in read.values()]
        first = by_id[0]
        fits = all(
            len(own) == len(answers)
            and first.keys() & own.keys()
            and all(first[id].prompt == own[id].prompt for id in first.keys() & own.keys())
            for own, answers in zip(by_id, read.values(), strict=True)
        )
        self._answers = {name: _keyed(answers, by_id=fits) for name, answers in read.items()}
        self._joined = list(self._join([tuple(files)] if together else combinations(files, 2)))
        used = {(name, key) for names, key in self._joined for name in names}
        left = {name: sum((name, key) not in used for key in keyed) for name, keyed in self._answers.items()}
        by = "id" if fits else "prompt"
        if not self._joined:
            raise ValueError(f"{self.name}: no two rows have the same {by}")
        alone = ", ".join(f"{count} of {files[name].name}" for name, count in left.items() if count)
        self.notes = (
            [f"rows without the same {by} in another file, which are left out: {alone}"] if alone else []
        )

    def __iter__(self) -> Iterator[Row | BadRow]:
        yield from self._bad
        for names, key in self._joined:
            answers = [self._answers[name][key] for name in names]
            row, id = answers[0].row, answers[0].id or answers[0].row.default_id
            if len(self._files) > len(names):
                id = f"{id}: {' and '.join(names)}"
            fields = {"id": id, "prompt": json.loads(answers[0].prompt), **row.fields}
            fields |= {"responses": [one.text for one in answers], "sources": [*names]}
            yield replace(row, default_id=id, fields=fields)

    def count(self) -> int:
        return len(self._joined) + len(self._bad)

    def is_at(self, path: Path) -> bool:
        """Return True if one of the files is the file at `path`."""
        return any(file.is_at(path) for file in self._files.values())

    def _join(self, groups: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the models and the key of each row, in the order of the first model's file."""
        for names in groups:
            first, *others = (self._answers[name] for name in names)
            yield from ((names, key) for key in first if all(key in other for other in others))

    def _read(self, file: RowSource) -> list[_Answer]:
        found = []
        for row in file:
            if isinstance(row, BadRow):
                self._bad.append(row)
                continue
            places = {part: self._place(row, part) for part in ("prompt", "response", "id")}
            if missing := [part for part in ("prompt", "response") if not places[part]]:
                part = missing[0]
                raise ValueError(f"{file.name}: no column is the {part}: name it with --column {part}=COLUMN")
            columns = Columns(**{part: place for part, place in places.items() if place})
            try:
                id, prompt, text = (columns.find(row.fields, part) for part in ("id", "prompt", "response"))
            except RowError as error:
                raise ValueError(f"{row.where}: {error}") from None
            used = {column_named(row.fields, place.partition(".")[0]) for place in places.values()}
            rest = {name: value for name, value in row.fields.items() if name not in used}
            id = "" if id is None else str(id)
            found.append(_Answer(replace(row, fields=rest), id, json.dumps(prompt), text))
        return found

    def _place(self, row: Row, part: str) -> str:
        """Return the place of a part: the named column, or one of a usual name; empty without any."""
        place: str = getattr(self._columns, part)
        if part in self._columns.model_fields_set or column_named(row.fields, place):
            return place
        return "" if part == "id" else known_place(row.fields, part)


def _keyed(answers: Sequence[_Answer], *, by_id: bool) -> dict[Any, _Answer]:
    """Return answers by their ids, or by their prompts and how often these occurred before."""
    seen = Counter[str]()
    keyed: dict[Any, _Answer] = {}
    for one in answers:
        keyed[one.id if by_id else (one.prompt, seen[one.prompt])] = one
        seen[one.prompt] += 1
    return keyed
