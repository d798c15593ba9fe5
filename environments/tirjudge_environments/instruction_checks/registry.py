"""Verifiers by name: IFEval's 25 instructions, and the checkable families of the demonstration model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge_environments.constraints import CHECKABLE, FAMILIES, Constraint, Slots
from tirjudge_environments.instruction_checks.base import Instruction, Verifier
from tirjudge_environments.instruction_checks.keywords import (
    CapitalWordFrequency,
    EnglishCapital,
    EnglishLowercase,
    Existence,
    ForbiddenWords,
    KeywordFrequency,
    LetterFrequency,
    ResponseLanguage,
)
from tirjudge_environments.instruction_checks.layout import (
    ConstrainedResponse,
    EndChecker,
    JsonFormat,
    MultipleSections,
    NoComma,
    NumberBulletLists,
    NumberHighlightedSections,
    NumberPlaceholders,
    Postscript,
    Quotation,
    RepeatPrompt,
    Title,
    TwoResponses,
)
from tirjudge_environments.instruction_checks.lengths import (
    NthParagraphFirstWord,
    NumberParagraphs,
    NumberSentences,
    NumberWords,
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
"""Id to instruction, in the order of IFEval's Table 1."""


class _Arguments(BaseModel):
    """Of a family of the demonstration model."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Word(_Arguments):
    word: str = Field(min_length=1)


class _Number(_Arguments):
    number: int


class _WordAndNumber(_Word, _Number):
    pass


def verifier_names() -> list[str]:
    """IFEval's ids, then our own families."""
    return [*IFEVAL, *(family.name for family in CHECKABLE)]


def open_verifier(name: str, **arguments: Any) -> Verifier:
    """A verifier by name with its arguments; those that are None are left out, as IFEval's rows hold them.

    Of our own families these are `word` and `number`, as far as a family has them. Raises ValueError, in one
    line, for a name that nobody has, and for arguments that are missing, unknown or of the wrong kind.
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
    """Which of a prompt's instructions a response follows, in their order."""

    strict: tuple[bool, ...]
    """The response as it stands; an empty one follows nothing."""
    loose: tuple[bool, ...]
    """Any of eight readings of it: with or without its first line, its last line and its asterisks."""


def verifiers_of(row: Mapping[str, Any]) -> tuple[Verifier, ...]:
    """Those of a row in IFEval's schema: `instruction_id_list`, and one object of arguments each, `kwargs`.

    Raises ValueError, in one line, for a row that is not in that schema.
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
    """Raises MissingExtra, once per process at the earliest, where a library is not installed."""
    readings = _readings(response)
    return Followed(
        strict=tuple(bool(response.strip()) and one.holds(response) for one in verifiers),
        loose=tuple(any(one.holds(reading) for reading in readings) for one in verifiers),
    )


def _readings(response: str) -> list[str]:
    """IFEval's eight (section 2.3), without those that are empty or alike."""
    lines = response.split("\n")
    cut = [response, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    readings = dict.fromkeys([*cut, *(text.replace("*", "") for text in cut)])
    return [reading for reading in readings if reading.strip()]
