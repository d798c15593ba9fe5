"""Editors that break one constraint of IFEval in an answer, several ways for each family.

A way yields answers with growing edits. It need not know when the constraint is broken: the caller checks
each answer with the verifiers and takes the first that fails. Answers on the way that still pass are harmless
edits of the same kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from research.smol.passages import (
    inserting,
    matches,
    removing,
    replacing,
    sentences,
    words,
)

_STEPS = 60
"""Most steps of one way; an answer that needs more is not broken minimally."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An answer to edit, the arguments of the constraint, and what an editor may draw from."""

    text: str
    arguments: dict[str, Any]
    draw: Random
    donors: Sequence[str]
    """Sentences of other answers, in drawn order."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]


Way = Callable[[Edit], Iterator[str]]


def _less(edit: Edit) -> bool:
    return any(value == "less than" for value in edit.arguments.values())


def drop_sentences(edit: Edit) -> Iterator[str]:
    """Remove sentences."""
    return removing(edit.text, sentences(edit.text)[:_STEPS], edit.draw)


def add_sentences(edit: Edit) -> Iterator[str]:
    """Insert sentences of other answers."""
    return inserting(edit.text, edit.donors[:_STEPS], edit.draw)


def _count_sentences(edit: Edit) -> Iterator[str]:
    return add_sentences(edit) if _less(edit) else drop_sentences(edit)


def join_sentences(edit: Edit) -> Iterator[str]:
    """Join sentences: their marks become semicolons and their first letters small."""
    joints = matches(r"(?<=[a-z])[.!] [A-Z](?=[a-z])", edit.text, re.NOFLAG)
    return replacing(edit.text, joints, lambda joint: f"; {joint[-1].lower()}", edit.draw)


def split_sentences(edit: Edit) -> Iterator[str]:
    """Split sentences at commas and semicolons."""
    joints = matches(r"(?<=[a-z])[,;] (?:and |but )?[a-z](?=[a-z])", edit.text, re.NOFLAG)
    return replacing(edit.text, joints, lambda joint: f". {joint[-1].upper()}", edit.draw)


def _number_sentences(edit: Edit) -> Iterator[str]:
    return split_sentences(edit) if _less(edit) else join_sentences(edit)


def _comma_at_conjunction(edit: Edit) -> Iterator[str]:
    joints = matches(r"(?<=\w) (?=(?:and|but|or|which|because|while|so|with|for|in|to|that) )", edit.text)
    return replacing(edit.text, joints, lambda _: ", ", edit.draw)


def _comma_after_opening(edit: Edit) -> Iterator[str]:
    openings = [(end, end + 1) for end in (_first_word(edit.text, span) for span in sentences(edit.text))]
    spaces = [span for span in openings if edit.text[slice(*span)] == " "]
    return replacing(edit.text, spaces, lambda _: ", ", edit.draw)


def _first_word(text: str, span: tuple[int, int]) -> int:
    match = re.compile(r"\w+").match(text, *span)
    return match.end() if match else span[1]


def _occurrences(edit: Edit) -> list[tuple[int, int]]:
    """Return the occurrences of a drawn keyword."""
    keyword = edit.draw.choice(edit["keywords"]) if "keywords" in edit.arguments else edit["keyword"]
    return matches(re.escape(keyword.strip()), edit.text)


def _remove_keyword(edit: Edit) -> Iterator[str]:
    return removing(edit.text, _occurrences(edit), edit.draw)


def _refer_to_keyword(edit: Edit) -> Iterator[str]:
    pronoun = edit.draw.choice(["it", "this", "the former", "such things"])
    return replacing(edit.text, _occurrences(edit), lambda _: pronoun, edit.draw)


def _misspell_keyword(edit: Edit) -> Iterator[str]:
    return replacing(
        edit.text,
        _occurrences(edit),
        lambda word: word[: len(word) // 2] + word[len(word) // 2 + 1 :],
        edit.draw,
    )


def _drop_sentences_with_keyword(edit: Edit) -> Iterator[str]:
    found = _occurrences(edit)
    holding = [span for span in sentences(edit.text) if any(span[0] <= at < span[1] for at, _ in found)]
    return removing(edit.text, holding, edit.draw)


def _mention(edit: Edit, word: str) -> Iterator[str]:
    """Mention a word more and more often."""
    phrases = [
        f"This is about {word}.",
        f"So much for {word}.",
        f"Think of {word} as well.",
        f"Mind the {word}.",
    ]
    edit.draw.shuffle(phrases)
    return inserting(edit.text, (phrases * 4)[:12], edit.draw)


def _exchange(edit: Edit, word: str) -> Iterator[str]:
    """Put a word in the place of others."""
    long = [span for span in words(edit.text, 5) if edit.text[span[0]].islower()]
    return replacing(edit.text, long[:200], lambda _: word, edit.draw)


def _forbidden(edit: Edit) -> str:
    return str(edit.draw.choice(edit["forbidden_words"]))


def _keyword_frequency(less: Way, least: Way) -> Way:
    return lambda edit: less(edit) if _less(edit) else least(edit)


def _change_letters(edit: Edit) -> Iterator[str]:
    letter = edit["letter"].lower()
    if _less(edit):
        rich = sorted(edit.donors[:400], key=lambda sentence: -sentence.lower().count(letter))
        return inserting(edit.text, rich[:_STEPS], edit.draw)
    holding = [span for span in words(edit.text) if letter in edit.text[slice(*span)].lower()]
    return removing(edit.text, holding[: 4 * _STEPS], edit.draw)


def _write_letters(edit: Edit) -> Iterator[str]:
    letter = edit["letter"]
    if _less(edit):
        return replacing(edit.text, words(edit.text, 4)[:400], lambda word: letter + word, edit.draw)
    return replacing(edit.text, matches(re.escape(letter), edit.text)[:200], lambda _: "", edit.draw)


def _other_language(edit: Edit) -> Iterator[str]:
    """Replace the end of the answer by an answer in another language, more and more of it."""
    other = edit["other"]
    marks = [start for start, _ in sentences(edit.text)] or [0]
    for start in reversed(marks):
        yield f"{edit.text[:start]}{other[: max(200, len(edit.text) - start)]}"
    yield other[: max(300, len(edit.text))]


def _drop_lines(pattern: str) -> Way:
    """Return a way that removes lines that match."""
    return lambda edit: removing(
        edit.text, matches(rf"^{pattern}.*(?:\n|$)", edit.text, re.MULTILINE), edit.draw
    )


def _swap(pattern: str, new: Callable[[str], str], flags: re.RegexFlag = re.NOFLAG) -> Way:
    """Return a way that rewrites more and more matches of a pattern."""
    return lambda edit: replacing(edit.text, matches(pattern, edit.text, flags)[: 4 * _STEPS], new, edit.draw)


def _more_bullets(edit: Edit) -> Iterator[str]:
    items = matches(r"^[ \t]*[*-] ?.*$", edit.text, re.MULTILINE)
    for start, end in items[:1] + items[-1:]:
        mark = re.match(r"[ \t]*[*-] ?", edit.text[start:end])
        assert mark is not None
        yield f"{edit.text[:end]}\n{mark[0]}{edit.donors[0]}{edit.text[end:]}"


def _separate(separator: str) -> Way:
    """Return a way that separates sentences of a paragraph."""

    def way(edit: Edit) -> Iterator[str]:
        gaps = [(end, end + 1) for _, end in sentences(edit.text) if edit.text[end : end + 1] == " "]
        return replacing(edit.text, gaps, lambda _: separator, edit.draw)

    return way


def _other_first_word(edit: Edit) -> Iterator[str]:
    openings = matches(rf"(?:(?<=\n\n)|^)\s*\W?{re.escape(edit['first_word'])}\b", edit.text)
    first = edit.draw.choice(["Then", "However", "Certainly", "The"])
    yield from replacing(edit.text, openings, lambda _: first, edit.draw)
    yield from replacing(edit.text, openings, lambda word: f"{first} {word.lower()}", edit.draw)


def _postscript(new: str) -> Way:
    return lambda edit: replacing(
        edit.text, matches(r"p\.\s?(?:p\.\s?)?s\.?", edit.text), lambda _: new, edit.draw
    )


def _without_postscript(edit: Edit) -> Iterator[str]:
    starts = matches(r"\n\s*\W{0,2}p\.\s?(?:p\.\s?)?s", edit.text)
    yield from (edit.text[:start].rstrip() for start, _ in reversed(starts))


def _damage_json(edit: Edit) -> Iterator[str]:
    damages = [
        lambda text: re.sub(r"\}(?=[^}]*$)", "", text),
        lambda text: re.sub(r'"(?=[^"]*$)', "", text),
        lambda text: text.replace('"', "'"),
        lambda text: re.sub(r'",(?=[^,]*$)', '"', text),
        lambda text: re.sub(r'":', '"', text, count=1),
    ]
    edit.draw.shuffle(damages)
    yield from (damage(edit.text) for damage in damages)


def _repeat_otherwise(edit: Edit) -> Iterator[str]:
    request = words(edit.text[: len(edit["prompt_to_repeat"])], 3)
    yield from replacing(edit.text, request, lambda _: "it", edit.draw)


def _without_repeat(edit: Edit) -> Iterator[str]:
    yield edit.text.strip()[len(edit["prompt_to_repeat"].strip()) :].strip()


def _before(edit: Edit) -> Iterator[str]:
    yield f"{edit.draw.choice(['Sure!', 'Of course.', 'Certainly.', 'Here you are.'])} {edit.text}"


def _after(edit: Edit) -> Iterator[str]:
    yield f"{edit.text.rstrip()} {edit.donors[0]}"


def _without_end(edit: Edit) -> Iterator[str]:
    end = edit["end_phrase"].strip()
    found = matches(re.escape(end), edit.text)
    if found:
        yield edit.text[: found[-1][0]].rstrip()
        yield from replacing(edit.text, [found[-1]], lambda text: text.rsplit(" ", 1)[0], edit.draw)


def _other_end(edit: Edit) -> Iterator[str]:
    last = words(edit.text, 3)[-4:]
    yield from replacing(edit.text, last, lambda word: word[::-1].lower(), edit.draw)


def _second_response(edit: Edit) -> Iterator[str]:
    first, _, second = edit.text.partition("******")
    yield first.strip()
    yield f"{first.strip()}\n\n******\n\n{first.strip()}"
    yield f"{first.strip()}\n\n{second.strip()}"


def _answer_freely(edit: Edit) -> Iterator[str]:
    yield re.sub(r"My answer is (yes|no|maybe)\.", lambda match: f"{match[1].capitalize()}.", edit.text)


def _lower_words(edit: Edit) -> Iterator[str]:
    found = [span for span in words(edit.text, 2) if edit.text[slice(*span)].isupper()]
    return replacing(edit.text, found[: 4 * _STEPS], str.lower, edit.draw)


def _capitalise_words(edit: Edit) -> Iterator[str]:
    return replacing(edit.text, words(edit.text, 2)[: 4 * _STEPS], str.upper, edit.draw)


def _capital_letters(edit: Edit) -> Iterator[str]:
    return replacing(edit.text, words(edit.text, 3)[: 4 * _STEPS], str.capitalize, edit.draw)


def _lower_sentence(edit: Edit) -> Iterator[str]:
    return replacing(edit.text, sentences(edit.text)[:_STEPS], str.capitalize, edit.draw)


def _quote(opening: str, closing: str) -> Way:
    def way(edit: Edit) -> Iterator[str]:
        yield f"{opening}{edit.text.strip()[1:-1]}{closing}"

    return way


_PLACEHOLDER, _HIGHLIGHT = r"\[[^\[\]\n]+\]", r"\*\*[^*\n]+\*\*|\*[^*\n]+\*"
_BULLET = r"^[ \t]*[*-](?= ?\S)(?!\*)"

BREAKS: dict[str, tuple[Way, ...]] = {
    "keywords:existence": (
        _remove_keyword,
        _refer_to_keyword,
        _misspell_keyword,
        _drop_sentences_with_keyword,
    ),
    "keywords:forbidden_words": (
        lambda edit: _mention(edit, _forbidden(edit)),
        lambda edit: _exchange(edit, _forbidden(edit)),
    ),
    "keywords:frequency": (
        _keyword_frequency(lambda edit: _mention(edit, edit["keyword"].strip()), _refer_to_keyword),
        _keyword_frequency(lambda edit: _exchange(edit, edit["keyword"].strip()), _remove_keyword),
        _keyword_frequency(
            lambda edit: _mention(edit, edit["keyword"].strip()), _drop_sentences_with_keyword
        ),
    ),
    "keywords:letter_frequency": (_change_letters, _write_letters),
    "language:response_language": (_other_language,),
    "length_constraints:number_paragraphs": (_swap(r"\s*\*\*\*\s*", lambda _: "\n\n"), _separate("\n***\n")),
    "length_constraints:number_words": (_count_sentences,),
    "length_constraints:number_sentences": (_count_sentences, _number_sentences),
    "length_constraints:nth_paragraph_first_word": (
        _other_first_word,
        _separate("\n\n"),
        _swap(r"\n\n+", lambda _: " "),
    ),
    "detectable_content:postscript": (_postscript("Note:"), _postscript("PS"), _without_postscript),
    "detectable_content:number_placeholders": (
        _swap(_PLACEHOLDER, lambda text: text[1:-1]),
        _swap(_PLACEHOLDER, lambda text: f"({text[1:-1]})"),
    ),
    "detectable_format:number_bullet_lists": (
        _drop_lines(_BULLET),
        _more_bullets,
        _swap(_BULLET, lambda text: text.replace("*", "•").replace("-", "•"), re.MULTILINE),
        _swap(_BULLET, lambda _: "1.", re.MULTILINE),
    ),
    "detectable_format:title": (
        _swap("<<[^\n]+>>", lambda text: text.strip("<>")),
        _swap("<<[^\n]+>>", lambda text: f"<{text.strip('<>')}>"),
        _swap("<<[^\n]+>>", lambda text: f"**{text.strip('<>')}**"),
        _drop_lines("[^\n]*<<"),
    ),
    "detectable_format:constrained_response": (
        _answer_freely,
        _swap("My answer is", lambda _: "My answer is certainly"),
        _swap("My answer is", lambda _: "I would say"),
    ),
    "detectable_format:number_highlighted_sections": (
        _swap(_HIGHLIGHT, lambda text: text.strip("*")),
        _swap(_HIGHLIGHT, lambda text: f'"{text.strip("*")}"'),
    ),
    "detectable_format:multiple_sections": (
        _swap(r"^\W*\w+ \d+", lambda text: re.sub(r"\w+ (\d+)", r"Item \1", text), re.MULTILINE),
        _drop_lines(r"\W*(?:SECTION|Section|PARAGRAPH|Paragraph|Day|DAY|Audience) \d"),
        _swap(r"\b[A-Z]\w+ \d+", lambda text: text.rsplit(" ", 1)[0]),
    ),
    "detectable_format:json_format": (_damage_json, _before, _after),
    "combination:repeat_prompt": (_repeat_otherwise, _without_repeat, _before),
    "combination:two_responses": (
        _swap(r"\*{6}", lambda _: "***"),
        _swap(r"\*{6}", lambda _: "------"),
        _second_response,
    ),
    "change_case:english_capital": (_lower_words, _capital_letters, _lower_sentence),
    "change_case:english_lowercase": (_capital_letters, _capitalise_words, _lower_sentence),
    "change_case:capital_word_frequency": (
        lambda edit: _capitalise_words(edit) if _less(edit) else _lower_words(edit),
    ),
    "startend:end_checker": (_without_end, _other_end, _after),
    "startend:quotation": (_quote("", ""), _quote("“", "”"), _quote("", '"'), _quote('"', ""), _after),
    "punctuation:no_comma": (_comma_at_conjunction, _comma_after_opening, add_sentences),
}
"""Ways to break a constraint, by family."""

HARMLESS: tuple[Way, ...] = (
    drop_sentences,
    add_sentences,
    lambda edit: replacing(
        edit.text, matches(r"\bvery\b|\balso\b|\breally\b", edit.text), lambda _: "quite", edit.draw
    ),
    lambda edit: removing(edit.text, words(edit.text, 7)[:_STEPS], edit.draw),
    join_sentences,
    lambda edit: replacing(
        edit.text, matches(r"(?<=\w) - (?=\w)|(?<=[a-z]); (?=[a-z])", edit.text), lambda _: " – ", edit.draw
    ),
    lambda edit: replacing(
        edit.text,
        words(edit.text, 6)[:_STEPS],
        lambda word: word[:2] + word[3] + word[2] + word[4:],
        edit.draw,
    ),
)
"""Ways to edit an answer that usually keep every constraint: the caller confirms that they do."""
