"""Verifiers by name: IFEval's 25 instructions, and the checkable families of the demonstration model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge_environments.constraints import CHECKABLE, FAMILIES, Constraint, Slots
from tirjudge_environments.faults import first_fault
from tirjudge_environments.verifiers.base import Instruction, Verifier
from tirjudge_environments.verifiers.keywords import (
    Existence,
    ForbiddenWords,
    KeywordFrequency,
    LetterFrequency,
)
from tirjudge_environments.verifiers.layout import (
    ConstrainedResponse,
    JsonFormat,
    MultipleSections,
    NumberBulletLists,
    NumberHighlightedSections,
    NumberPlaceholders,
    Postscript,
    Title,
)
from tirjudge_environments.verifiers.lengths import (
    NthParagraphFirstWord,
    NumberParagraphs,
    NumberSentences,
    NumberWords,
)
from tirjudge_environments.verifiers.letter_case import (
    CapitalWordFrequency,
    EnglishCapital,
    EnglishLowercase,
    ResponseLanguage,
)
from tirjudge_environments.verifiers.whole import (
    EndChecker,
    NoComma,
    Quotation,
    RepeatPrompt,
    TwoResponses,
)

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
            f"no verifier is called {name!r}: see tirjudge_environments.verifiers.verifier_names"
        )
    takes = {
        (False, False): _Arguments,
        (True, False): _Word,
        (False, True): _Number,
        (True, True): _WordAndNumber,
    }
    checked = takes[family.takes_word, family.takes_number](**arguments)
    return Constraint(family, Slots(**checked.model_dump()), name)
