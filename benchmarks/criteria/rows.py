"""Rows whose criteria are IFEval's constraints, so that verifiers know which response satisfies which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from research.smol.ifeval_pairs import Asked, asked, breaks, repaired, row
from research.smol.sources import Fields
from research.smol.splits import Split, rank
from tirjudge_environments.instruction_checks import followed

Arguments = Mapping[str, Any]

_ONE_WORD = "the word {keyword} {relation} {frequency} times"
_WORDINGS: dict[str, str | Callable[[Arguments], str]] = {
    "keywords:existence": lambda given: f"contains the keywords {_words(given['keywords'])}",
    "keywords:forbidden_words": lambda given: f"contains one of the words {_words(given['forbidden_words'])}",
    "keywords:frequency": f"contains {_ONE_WORD}",
    "keywords:letter_frequency": "contains the letter {letter} {let_relation} {let_frequency} times",
    "language:response_language": "is written in the language with the code {language}",
    "length_constraints:number_paragraphs": "has exactly {num_paragraphs} paragraphs, separated by ***",
    "length_constraints:number_words": "has {relation} {num_words} words",
    "length_constraints:number_sentences": "has {relation} {num_sentences} sentences",
    "length_constraints:nth_paragraph_first_word": (
        "has {num_paragraphs} paragraphs, and paragraph {nth_paragraph} starts with the word {first_word}"
    ),
    "detectable_content:postscript": "ends with a postscript that starts with {postscript_marker}",
    "detectable_content:number_placeholders": (
        "has at least {num_placeholders} placeholders in square brackets, such as [address]"
    ),
    "detectable_format:number_bullet_lists": "has exactly {num_bullets} bullet points in Markdown",
    "detectable_format:title": "has a title in double angular brackets, such as <<title>>",
    "detectable_format:constrained_response": (
        "contains 'My answer is yes.', 'My answer is no.' or 'My answer is maybe.'"
    ),
    "detectable_format:number_highlighted_sections": (
        "has at least {num_highlights} highlighted sections in Markdown, such as *section*"
    ),
    "detectable_format:multiple_sections": (
        "has at least {num_sections} sections, each of which starts with {section_spliter} and its number"
    ),
    "detectable_format:json_format": "is JSON as a whole",
    "combination:repeat_prompt": "starts with this request, word for word: {prompt_to_repeat}",
    "combination:two_responses": "has two different answers, separated by ******",
    "change_case:english_capital": "is in English and in capital letters only",
    "change_case:english_lowercase": "is in English and in lowercase letters only",
    "change_case:capital_word_frequency": (
        "contains words in all capital letters {capital_relation} {capital_frequency} times"
    ),
    "startend:end_checker": "ends with the exact phrase: {end_phrase}",
    "startend:quotation": "is wrapped in double quotation marks",
    "punctuation:no_comma": "contains a comma",
}
"""Predicates that complete the sentence `The response ...`, by family; slots are IFEval's arguments."""
_FAULTS = frozenset({"keywords:forbidden_words", "punctuation:no_comma"})
"""Families whose wording names a fault: criteria of negative polarity."""


def _words(words: list[str]) -> str:
    return ", ".join(words)


def criterion(family: str, arguments: Arguments) -> Fields:
    """Return the criterion of a constraint."""
    wording = _WORDINGS[family]
    text = wording.format(**arguments) if isinstance(wording, str) else wording(arguments)
    polarity = "negative" if family in _FAULTS else "positive"
    return {"text": f"The response {text}.", "polarity": polarity}


def rows(kind: str, split: Split) -> Iterator[Fields]:
    """Yield rows of a half in a seeded order: `pairs` of answers, or `lists` of one right and three wrong.

    A row has two constraints or more, each a criterion. `truth` has for each criterion and each response what
    the verifier says of the strict reading. Rows are made as they are taken.
    """
    make = _pair if kind == "pairs" else _list
    for one in sorted(asked(), key=lambda one: rank("criteria", one.key)):
        criteria = [criterion(*pair) for pair in zip(one.families, one.arguments, strict=True)]
        if one.split != split or not 1 < len(criteria) == len({each["text"] for each in criteria}):
            continue
        fields = make(one)
        if fields is not None:
            results = [followed(one.verifiers, response).strict for response in fields["responses"]]
            truth = [list(each) for each in zip(*results, strict=True)]
            yield {**fields, "criteria": criteria, "truth": truth}


def _pair(one: Asked) -> Fields | None:
    """Return a passing answer and a broken copy, or a failing answer and its repair; None without an edit."""
    edited = next(breaks(one, one.answer), None) if all(one.holds) else repaired(one)
    if edited is None:
        return None
    if all(one.holds):
        return row(one, "criteria-broken", one.answer, [(edited.text, edited.family)])
    return row(one, "criteria-repaired", edited.text, [(one.answer, edited.family)])


def _list(one: Asked) -> Fields | None:
    """Return a passing answer among three broken copies of it; None if there are not so many."""
    if not all(one.holds):
        return None
    wrong = {edited.text: edited.family for edited in islice(breaks(one, one.answer), 6)}
    return row(one, "criteria-list", one.answer, list(wrong.items())[:3]) if len(wrong) > 2 else None
