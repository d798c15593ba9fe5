"""Verifiers by name, and the strict and loose results of a prompt's verifiers on a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge_environments.constraints import CHECKABLE, FAMILIES, Constraint, Slots
from tirjudge_environments.instruction_checks.ifeval import (
    CapitalWordFrequency,
    ConstrainedResponse,
    EndChecker,
    EnglishCapital,
    EnglishLowercase,
    Existence,
    ForbiddenWords,
    Instruction,
    JsonFormat,
    KeywordFrequency,
    LetterFrequency,
    MultipleSections,
    NoComma,
    NthParagraphFirstWord,
    NumberBulletLists,
    NumberHighlightedSections,
    NumberParagraphs,
    NumberPlaceholders,
    NumberSentences,
    NumberWords,
    Postscript,
    Quotation,
    RepeatPrompt,
    ResponseLanguage,
    Title,
    TwoResponses,
    Verifier,
)
from tirjudge_environments.registry import first_fault

IFEVAL: Mapping[str, type[Instruction]] = {
    instruction.id: instruction
    for instruction in (
        Existence,
        ForbiddenWords,
        KeywordFrequency,
        LetterFrequency,
        ResponseLanguage,
        NumberParagraphs,
        NumberWords,
        NumberSentences,
        NthParagraphFirstWord,
        Postscript,
        NumberPlaceholders,
        NumberBulletLists,
        Title,
        ConstrainedResponse,
        NumberHighlightedSections,
        MultipleSections,
        JsonFormat,
        RepeatPrompt,
        TwoResponses,
        EnglishCapital,
        EnglishLowercase,
        CapitalWordFrequency,
        EndChecker,
        Quotation,
        NoComma,
    )
}
"""Instructions by id, in the order of IFEval's Table 1."""


class _Arguments(BaseModel):
    """The arguments of a family of the demonstration model."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Word(_Arguments):
    word: str = Field(min_length=1)


class _Number(_Arguments):
    number: int


class _WordAndNumber(_Word, _Number):
    pass


def verifier_names() -> list[str]:
    """Return IFEval's ids, then the names of our own families."""
    return [*IFEVAL, *(family.name for family in CHECKABLE)]


def open_verifier(name: str, **arguments: Any) -> Verifier:
    """Return the verifier of this name; arguments that are None are ignored, since IFEval's rows hold them.

    Our own families take `word` and `number`, where a family has them. Raises ValueError, in one line, for an
    unknown name, and for arguments that are missing, unknown or of the wrong type.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        return IFEVAL[name](**given) if name in IFEVAL else _family(name, given)
    except ValidationError as error:
        raise ValueError(f"{name}: {first_fault(error)}") from None


def _family(name: str, arguments: Mapping[str, Any]) -> Verifier:
    family = FAMILIES.get(name)
    if family is None or not family.checkable:
        raise ValueError(
            f"no verifier is called {name!r}: see tirjudge_environments.instruction_checks.verifier_names"
        )
    takes = {
        (False, False): _Arguments,
        (True, False): _Word,
        (False, True): _Number,
        (True, True): _WordAndNumber,
    }
    checked = takes[family.takes_word, family.takes_number](**arguments)
    return Constraint(family, Slots(**checked.model_dump()), name)


@dataclass(frozen=True, slots=True)
class Followed:
    """The instructions of a prompt that a response follows, one value per instruction, in order."""

    strict: tuple[bool, ...]
    """Results for the unchanged response; an empty one follows nothing."""
    loose: tuple[bool, ...]
    """True if any of eight variants follows it: with or without first line, last line and asterisks."""


def verifiers_of(row: Mapping[str, Any]) -> tuple[Verifier, ...]:
    """Return the verifiers of a row in IFEval's schema.

    The row has `instruction_id_list`, and `kwargs` with one object of arguments per instruction. Raises
    ValueError, in one line, for any other row.
    """
    names, arguments = row.get("instruction_id_list"), row.get("kwargs")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("instruction_id_list must be a list of names of instructions")
    arguments = [{}] * len(names) if arguments is None else arguments
    if not isinstance(arguments, list) or len(arguments) != len(names):
        raise ValueError(f"kwargs must be a list of {len(names)} objects, one for each instruction")
    if not all(isinstance(one, Mapping) for one in arguments):
        raise ValueError("kwargs must hold objects")
    return tuple(open_verifier(name, **one) for name, one in zip(names, arguments, strict=True))


def followed(verifiers: Sequence[Verifier], response: str) -> Followed:
    """Check a response strictly and loosely; raises MissingExtra if a library is not installed."""
    readings = _readings(response)
    return Followed(
        strict=tuple(bool(response.strip()) and one.holds(response) for one in verifiers),
        loose=tuple(any(one.holds(reading) for reading in readings) for one in verifiers),
    )


def _readings(response: str) -> list[str]:
    """Return IFEval's eight variants (section 2.3) without empty and equal ones."""
    lines = response.split("\n")
    cut = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    readings = dict.fromkeys([*cut, *(text.replace("*", "") for text in cut)])
    return [reading for reading in readings if reading.strip()]
