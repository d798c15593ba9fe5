"""Checks of IFEval's 25 instructions (Zhou et al. 2023), which a program can verify without a model."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field, ValidationError

from tirjudge_environments.registry import first_fault
from tirjudge_environments.types import FrozenModel

Relation = Literal["less than", "at least"]
"""The comparison of a count with its threshold."""
_EXTRA = "constraints on words, sentences and languages need the extra `eval`: pip install 'tirjudge[eval]'"
_SEED = 0


class Verifier(Protocol):
    """A check of one instruction without a model, with the same result on every machine and every time."""

    def holds(self, response: str) -> bool:
        """Return True if the response follows the instruction, for any text, in time linear in its length."""


class Instruction(FrozenModel, ABC):
    """One of IFEval's 25 instructions (Zhou et al. 2023, Table 1); the fields are the arguments.

    Results equal the results of the authors' released registry, with two exceptions: random draws of the
    registry (see `LetterFrequency` and `detected_language`), and words of a row, which are plain text here
    and not patterns.
    """

    id: ClassVar[str]
    """The name in rows: `group:instruction`."""

    @abstractmethod
    def holds(self, response: str) -> bool: ...


def compares(count: int, relation: Relation, threshold: int) -> bool:
    """Compare a count with its threshold."""
    return count < threshold if relation == "less than" else count >= threshold


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
        # Not `\b`, which finds no end of a word after a mark: `C++` would never be found before a space.
        return not any(
            re.search(rf"(?<!\w){re.escape(word.strip())}(?!\w)", response, re.IGNORECASE)
            for word in self.forbidden_words
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
    """The response has an exact number of paragraphs, and a given paragraph starts with a given word.

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
        # Without leading quotes, and without anything from the first mark on.
        first = _ENDS_A_WORD.split(words[0].lstrip("'").lstrip('"'), maxsplit=1)[0] if words else ""
        return bool(words) and first.lower() == self.first_word.lower()


_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
# The bare fence comes last: removed first, it would leave the name of the language.
_FENCES = ("```json", "```Json", "```JSON", "```")


class ConstrainedResponse(Instruction):
    """One of the three answers `My answer is yes.`, `no.` and `maybe.` appears."""

    id: ClassVar[str] = "detectable_format:constrained_response"

    def holds(self, response: str) -> bool:
        return any(answer in response for answer in _ANSWERS)


class NumberBulletLists(Instruction):
    """The response has an exact number of Markdown bullet points, `*` or `-`."""

    id: ClassVar[str] = "detectable_format:number_bullet_lists"
    num_bullets: int

    def holds(self, response: str) -> bool:
        # Not `\s`, which crosses lines and takes quadratic time on a text of empty ones.
        stars = re.findall(r"^[^\S\n]*+\*[^*].*$", response, re.MULTILINE)
        dashes = re.findall(r"^[^\S\n]*+-.*$", response, re.MULTILINE)
        return len(stars) + len(dashes) == self.num_bullets


class NumberHighlightedSections(Instruction):
    """The response has at least a number of parts between asterisks; `**bold**` counts as one."""

    id: ClassVar[str] = "detectable_format:number_highlighted_sections"
    num_highlights: int

    def holds(self, response: str) -> bool:
        single = re.findall(r"\*([^\n*]*)\*", response)
        double = re.findall(r"\*\*([^\n*]*)\*\*", response)
        return sum(bool(text.strip()) for text in [*single, *double]) >= self.num_highlights


class MultipleSections(Instruction):
    """The response has at least a number of sections, each opened by a word and a number: `Section 1`."""

    id: ClassVar[str] = "detectable_format:multiple_sections"
    section_spliter: str = Field(min_length=1)
    num_sections: int

    def holds(self, response: str) -> bool:
        opening = rf"{re.escape(self.section_spliter.strip())}\s?\d+"
        return len(re.findall(opening, response)) >= self.num_sections


class JsonFormat(Instruction):
    """The whole response is JSON, possibly in a fence."""

    id: ClassVar[str] = "detectable_format:json_format"

    def holds(self, response: str) -> bool:
        text = response.strip()
        for fence in _FENCES:
            text = text.removeprefix(fence)
        try:
            json.loads(text.removesuffix("```").strip())
        except (ValueError, RecursionError):
            return False
        return True


class Title(Instruction):
    """The response has a title in double angle brackets: `<<poem of joy>>`."""

    id: ClassVar[str] = "detectable_format:title"

    def holds(self, response: str) -> bool:
        return any(title.lstrip("<").rstrip(">").strip() for title in _titles(response))


class NumberPlaceholders(Instruction):
    """The response has at least a number of placeholders in square brackets: `[address]`."""

    id: ClassVar[str] = "detectable_content:number_placeholders"
    num_placeholders: int

    def holds(self, response: str) -> bool:
        return sum(map(_bracketed, response.split("\n"))) >= self.num_placeholders


class Postscript(Instruction):
    """The response has a postscript, opened by its marker: `P.S.`, `P.P.S`."""

    id: ClassVar[str] = "detectable_content:postscript"
    postscript_marker: str = Field(min_length=1)

    def holds(self, response: str) -> bool:
        marker = self.postscript_marker.strip()
        spaced = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
        return re.search(spaced.get(marker, re.escape(marker.lower())), response.lower()) is not None


def _titles(text: str) -> Iterator[str]:
    """Yield for each line the text from the first `<<` to the last `>>`, if anything is between them."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start < end - 2:
            yield line[start : end + 2]


def _bracketed(line: str) -> int:
    """Count `[...]` in a line; a regular expression would take quadratic time on unclosed brackets."""
    count = 0
    start = line.find("[")
    while start >= 0 and (end := line.find("]", start)) >= 0:
        count += 1
        start = line.find("[", end)
    return count


class NoComma(Instruction):
    """The response has no comma."""

    id: ClassVar[str] = "punctuation:no_comma"

    def holds(self, response: str) -> bool:
        return "," not in response


class Quotation(Instruction):
    """The whole response is in double quotation marks."""

    id: ClassVar[str] = "startend:quotation"

    def holds(self, response: str) -> bool:
        text = response.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'


class EndChecker(Instruction):
    """The response ends with a phrase, in any case; a quotation mark may follow."""

    id: ClassVar[str] = "startend:end_checker"
    end_phrase: str = Field(min_length=1)

    def holds(self, response: str) -> bool:
        return response.strip().strip('"').lower().endswith(self.end_phrase.strip().lower())


class RepeatPrompt(Instruction):
    """The response starts with the request, word for word, in any case."""

    id: ClassVar[str] = "combination:repeat_prompt"
    prompt_to_repeat: str = Field(min_length=1)

    def holds(self, response: str) -> bool:
        return response.strip().lower().startswith(self.prompt_to_repeat.strip().lower())


class TwoResponses(Instruction):
    """The response consists of two different responses, separated by `******`."""

    id: ClassVar[str] = "combination:two_responses"

    def holds(self, response: str) -> bool:
        parts = [part.strip() for part in response.split("******")]
        filled = [part for part in parts if part]
        return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


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


def open_verifier(name: str, /, **arguments: Any) -> Verifier:
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


class MissingExtra(ValueError):
    """A missing library; the message names the extra that installs it, in one line."""


def count_words(text: str) -> int:
    """Count runs of letters, digits and underscores."""
    return sum(1 for _ in re.finditer(r"\w+", text))


def count_sentences(text: str) -> int:
    """Count sentences with Punkt's English model (Kiss & Strunk 2006). Raises MissingExtra."""
    return len(_sentences().tokenize(text))


def words_and_marks(text: str) -> list[str]:
    """Return Penn Treebank tokens, sentence by sentence. Raises MissingExtra."""
    return [token for sentence in _sentences().tokenize(text) for token in _words().tokenize(sentence)]


def detected_language(text: str) -> str | None:
    """Return the most likely language as an ISO 639-1 code; None for a text without informative letters.

    The detector samples letters of the text. A fixed seed and a fixed order of profiles make the result a
    function of the text. Raises MissingExtra.
    """
    factory, undetectable = _detectors()
    detector = factory.create()
    detector.append(text)
    try:
        return str(detector.detect())
    except undetectable:
        return None


@cache
def _sentences() -> Any:
    try:
        import punkt
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    return punkt.tokenizer_for("english")


@cache
def _words() -> Any:
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    return NLTKWordTokenizer()


@cache
def _detectors() -> tuple[Any, type[Exception]]:
    """Return a detector factory of our own, since the library's global one shares its seed with all users."""
    try:
        from langdetect import LangDetectException
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    factory = DetectorFactory()
    profiles = sorted(Path(PROFILES_DIRECTORY).iterdir())
    factory.load_json_profile([profile.read_text(encoding="utf-8") for profile in profiles])
    factory.set_seed(_SEED)
    return factory, LangDetectException
