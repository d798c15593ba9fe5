"""Columns: which places of a row hold the parts of a task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Self

from tirjudge_environments.tasks.cells import RowError, plain, text_of
from tirjudge_environments.types import FrozenModel

_MISSING = object()
"""The value of a place that a row does not have."""


class ColumnPlaces(FrozenModel):
    """The places in a row that hold the parts of something, one field for each part.

    A place is the name of a column. Dots reach into nested columns, and numbers into lists:
    `messages.0.content`, `messages.-1.content`. `a+b` joins texts with an empty line, without empty texts;
    `a,b,c` lists places. If the row has a column of exactly this name, that column is taken, or else the only
    column whose name differs in capitals, spaces and punctuation: `Response A` for `response_a`.
    """

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset()
    """Parts that an empty place leaves out, whatever columns a row has."""

    @classmethod
    def parse(cls, assignments: Iterable[str]) -> Self:
        """Parse `part=place` texts; raises ValueError for an unknown part or an empty place."""
        places: dict[str, str] = {}
        for assignment in assignments:
            part, _, place = assignment.partition("=")
            if part not in cls.model_fields or not (place or part in cls.MAY_BE_LEFT_OUT):
                raise ValueError(
                    f"{assignment!r}: write PART=COLUMN, where PART is one of {', '.join(cls.model_fields)}"
                )
            if places.setdefault(part, place) != place:
                raise ValueError(f"{part} is in two columns, {places[part]!r} and {place!r}: name one")
        return cls(**places)

    def find(self, row: Mapping[str, Any], part: str) -> Any:
        """Return the value of a part, or None if it is absent.

        Raises RowError if the place was set explicitly and is absent.
        """
        place = getattr(self, part)
        if not place and part in self.MAY_BE_LEFT_OUT:
            return None
        try:
            value = plain(_lookup(row, place))
        except RecursionError:
            raise RowError(f"{part} is nested too deeply") from None
        if value is _MISSING and part in self.model_fields_set:
            places = map(str.strip, re.split("[,+]", place))
            absent = (one for one in places if _lookup(row, one) is _MISSING)
            raise RowError(f"no column {next(absent, place)!r} (named as {part})")
        return None if value is _MISSING else value


class Columns(ColumnPlaces):
    """The places in a row that hold the parts of a task.

    The responses are `responses` (a list), or `response_a` and `response_b`, or `chosen` and `rejected`
    (one or a list; the label is then the chosen one), or `response` alone: the first of these columns
    that the row has, or the column that was named.
    """

    MAY_BE_LEFT_OUT: ClassVar[frozenset[str]] = frozenset(
        {"system", "reference", "criteria", "sources", "tools", "files", "prompt_files"}
    )

    id: str = "id"
    """The row's name in results; without it, rows are numbered."""
    prompt: str = "prompt"
    """The question: a text, or a list of chat messages."""
    system: str = "system"
    """A system message before the prompt; without this column, `system_prompt` or `system_message`."""
    responses: str = "responses"
    response_a: str = "response_a"
    response_b: str = "response_b"
    chosen: str = "chosen"
    rejected: str = "rejected"
    response: str = "response"
    label: str = "label"
    """The better response, or people's judgement of a single response; or a list of columns, for each
    response and perhaps for ties, of which one is 1: `winner_model_a,winner_model_b,winner_tie`."""
    domain: str = "domain"
    """`safety`, `helpfulness`, `math`, ...: some rewards and prompts depend on it."""
    tags: str = "tags"
    """Free labels that result rows repeat."""
    checklist: str = "checklist"
    """People's reasons for the label, a list of texts."""
    gold_scores: str = "gold_scores"
    """The gold score of each response, a list of numbers, such as GPT-4's scores in JudgeLM-100K."""
    reference: str = "reference"
    """A reference answer that the judge is shown."""
    criteria: str = "criteria"
    """Criteria that the responses are judged by: texts, or objects with text, weight, polarity and
    must_have."""
    sources: str = ""
    """Names of the responses' sources, a list: `model_a,model_b`. Without them, the names of the columns
    that hold one response each: `responses=gpt_answer,claude_answer`."""
    tools: str = "tools"
    """Tools that were offered for the responses, a list in OpenAI's form, which the judge is shown."""
    files: str = "files"
    """The files that each response left behind: for each, a mapping from path to content, or the name of a
    folder or an archive."""
    prompt_files: str = "prompt_files"
    """The files that whoever responded was given, in the same form."""


DEFAULT_COLUMNS = Columns()


def _lookup(row: Mapping[str, Any], place: str) -> Any:
    column = column_named(row, place)
    if column is not None:
        return row[column]
    if "," in place:
        return _together(row, place.split(","))
    if "+" in place:
        values = _together(row, place.split("+"))
        if values is _MISSING:
            return values
        texts = [text_of(value, place) for value in values if value is not None]
        return "\n\n".join(text for text in texts if text.strip())
    value: Any = row
    for step in place.split("."):
        value = _step(value, step)
    return value


def column_named(row: Iterable[str], name: str) -> str | None:
    """Return the column of this name, or else the only column with a similar name; None without one."""
    if name in row:
        return name
    wanted = similar_name(name)
    found = [column for column in row if wanted and similar_name(column) == wanted]
    return found[0] if len(found) == 1 else None


@lru_cache(1 << 12)
def similar_name(name: str) -> str:
    """Return what names have in common that differ in capitals, spaces and punctuation."""
    return "".join(filter(str.isalnum, str(name).casefold()))


def _together(row: Mapping[str, Any], places: Iterable[str]) -> Any:
    values = [_lookup(row, place.strip()) for place in places]
    return _MISSING if any(value is _MISSING for value in values) else values


def _step(value: Any, step: str) -> Any:
    if isinstance(value, Mapping):
        column = column_named(value, step)
        return _MISSING if column is None else value[column]
    if isinstance(value, list) and re.fullmatch(r"-?[0-9]{1,9}", step):
        index = int(step)
        return value[index] if -len(value) <= index < len(value) else _MISSING
    return _MISSING
