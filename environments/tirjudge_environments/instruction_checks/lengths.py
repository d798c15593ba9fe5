"""IFEval's instructions on the number of words, sentences and paragraphs."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from tirjudge_environments.instruction_checks.base import Instruction, Relation, compares
from tirjudge_environments.instruction_checks.english import count_sentences, count_words

_ENDS_A_WORD = re.compile("[.,?!'\"]")


class NumberWords(Instruction):
    """The response has a given number of words."""

    id: ClassVar[str] = "length_constraints:number_words"
    num_words: int
    relation: Relation

    def holds(self, response: str) -> bool:
        return compares(count_words(response), self.relation, self.num_words)


class NumberSentences(Instruction):
    """The response has a given number of sentences."""

    id: ClassVar[str] = "length_constraints:number_sentences"
    num_sentences: int
    relation: Relation

    def holds(self, response: str) -> bool:
        return compares(count_sentences(response), self.relation, self.num_sentences)


class NumberParagraphs(Instruction):
    """The response has an exact number of paragraphs, separated by `***`.

    Only the first and the last one may be empty.
    """

    id: ClassVar[str] = "length_constraints:number_paragraphs"
    num_paragraphs: int

    def holds(self, response: str) -> bool:
        filled = [bool(part.strip()) for part in response.split("***")]
        return all(filled[1:-1]) and sum(filled) == self.num_paragraphs


class NthParagraphFirstWord(Instruction):
    """The response has an exact number of paragraphs, and one of them starts with a given word.

    Empty lines separate paragraphs.
    """

    id: ClassVar[str] = "length_constraints:nth_paragraph_first_word"
    num_paragraphs: int
    nth_paragraph: int = Field(ge=1)
    """Number of the paragraph, counted from 1, empty ones included."""
    first_word: str = Field(min_length=1)

    def holds(self, response: str) -> bool:
        paragraphs = [part.strip() for part in response.split("\n\n")]
        filled = sum(map(bool, paragraphs))
        if filled != self.num_paragraphs or self.nth_paragraph > filled:
            return False
        words = paragraphs[self.nth_paragraph - 1].split(maxsplit=1)
        return bool(words) and _bare(words[0]) == self.first_word.lower()


def _bare(word: str) -> str:
    """Return the word in lower case without leading quotes and without anything from the first mark on."""
    return _ENDS_A_WORD.split(word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()
