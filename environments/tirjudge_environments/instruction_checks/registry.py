"""Verifiers by name, and the strict and loose results of a prompt's verifiers on a response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

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


def open_verifier(name: str, **arguments: Any) -> Verifier:
    """Return the verifier of this instruction. Arguments that are None, as in IFEval's rows, are ignored.

    Raises ValueError, in one line, for an unknown name, and for arguments that are missing, unknown or of the
    wrong type.
    """
    if name not in IFEVAL:
        raise ValueError(
            f"no verifier is called {name!r}: see tirjudge_environments.instruction_checks.IFEVAL"
        )
    try:
        return IFEVAL[name](**{key: value for key, value in arguments.items() if value is not None})
    except ValidationError as error:
        raise ValueError(f"{name}: {first_fault(error)}") from None


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
