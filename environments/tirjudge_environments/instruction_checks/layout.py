"""IFEval's instructions on the format of a response: lists, sections, titles, beginning and end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from tirjudge_environments.instruction_checks.base import Instruction

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
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
