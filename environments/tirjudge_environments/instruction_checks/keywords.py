"""IFEval's instructions on keywords, letters, language and letter case."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field

from tirjudge_environments.instruction_checks.base import Instruction, Relation, compares
from tirjudge_environments.instruction_checks.english import detected_language, words_and_marks

Keyword = Annotated[str, Field(min_length=1)]


class Existence(Instruction):
    """Every keyword appears, in any case, possibly within another word."""

    id: ClassVar[str] = "keywords:existence"
    keywords: tuple[Keyword, ...] = Field(min_length=1)

    def holds(self, response: str) -> bool:
        return all(re.search(re.escape(word), response, re.IGNORECASE) for word in self.keywords)


class ForbiddenWords(Instruction):
    """None of the words appears as a whole word."""

    id: ClassVar[str] = "keywords:forbidden_words"
    forbidden_words: tuple[Keyword, ...] = Field(min_length=1)

    def holds(self, response: str) -> bool:
        return not any(
            re.search(rf"\b{re.escape(word)}\b", response, re.IGNORECASE) for word in self.forbidden_words
        )


class KeywordFrequency(Instruction):
    """A keyword appears a given number of times, in any case."""

    id: ClassVar[str] = "keywords:frequency"
    keyword: Keyword
    frequency: int
    relation: Relation

    def holds(self, response: str) -> bool:
        found = re.findall(re.escape(self.keyword.strip()), response, re.IGNORECASE)
        return compares(len(found), self.relation, self.frequency)


class LetterFrequency(Instruction):
    """A letter appears a given number of times, in any case.

    Two of IFEval's prompts ask for `#` and `!`. The released registry replaces them with a random letter;
    here the characters themselves are counted.
    """

    id: ClassVar[str] = "keywords:letter_frequency"
    letter: str = Field(min_length=1, max_length=1)
    let_frequency: int
    let_relation: Relation

    def holds(self, response: str) -> bool:
        count = response.lower().count(self.letter.lower())
        return compares(count, self.let_relation, self.let_frequency)


class ResponseLanguage(Instruction):
    """The response is in one language; a text of undetectable language passes."""

    id: ClassVar[str] = "language:response_language"
    language: str = Field(min_length=2)
    """ISO 639-1 code."""

    def holds(self, response: str) -> bool:
        return detected_language(response) in (self.language, None)


class EnglishCapital(Instruction):
    """The response is English, in capital letters only."""

    id: ClassVar[str] = "change_case:english_capital"

    def holds(self, response: str) -> bool:
        return response.isupper() and detected_language(response) in ("en", None)


class EnglishLowercase(Instruction):
    """The response is English, in lower-case letters only."""

    id: ClassVar[str] = "change_case:english_lowercase"

    def holds(self, response: str) -> bool:
        return response.islower() and detected_language(response) in ("en", None)


class CapitalWordFrequency(Instruction):
    """A given number of words are in capital letters; a hyphen joins words, an apostrophe splits them."""

    id: ClassVar[str] = "change_case:capital_word_frequency"
    capital_frequency: int
    capital_relation: Relation

    def holds(self, response: str) -> bool:
        count = sum(token.isupper() for token in words_and_marks(response))
        return compares(count, self.capital_relation, self.capital_frequency)
