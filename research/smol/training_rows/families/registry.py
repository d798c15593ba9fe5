"""IFEval's 25 families and six further ones: weights, wordings, and which of them do not go together."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from research.smol.training_rows.families.base import Constraint, Family, Form
from research.smol.training_rows.families.further import (
    LineStart,
    NoMark,
    NumberedList,
    NumberLines,
    ParagraphSentences,
    StartPhrase,
)
from research.smol.training_rows.families.keywords import (
    CapitalWords,
    Existence,
    ForbiddenWords,
    KeywordFrequency,
    LetterFrequency,
)
from research.smol.training_rows.families.language import EnglishCapital, EnglishLowercase, ResponseLanguage
from research.smol.training_rows.families.layout import (
    Highlights,
    NthParagraph,
    NumberBullets,
    NumberSentences,
    NumberWords,
    Paragraphs,
    Placeholders,
    Sections,
)
from research.smol.training_rows.families.marks import (
    ConstrainedResponse,
    EndChecker,
    JsonFormat,
    NoComma,
    Postscript,
    Quotation,
    RepeatPrompt,
    Title,
    TwoResponses,
)
from research.smol.training_rows.writing import Pen

_WEIGHTS: Mapping[type[Family], float] = {
    Existence: 1.5,
    ForbiddenWords: 1.7,
    KeywordFrequency: 1.3,
    LetterFrequency: 1.2,
    ResponseLanguage: 1.9,
    Paragraphs: 1.2,
    NumberWords: 1.4,
    NumberSentences: 1.3,
    NthParagraph: 1.2,
    Postscript: 0.8,
    Placeholders: 0.9,
    NumberBullets: 1,
    Title: 0.8,
    ConstrainedResponse: 1.2,
    Highlights: 1,
    Sections: 1,
    JsonFormat: 0.8,
    RepeatPrompt: 1.3,
    TwoResponses: 0.8,
    EnglishCapital: 0.8,
    EnglishLowercase: 0.9,
    CapitalWords: 1.3,
    EndChecker: 1,
    Quotation: 0.9,
    NoComma: 1,
    NumberedList: 1.2,
    NumberLines: 0.8,
    LineStart: 0.8,
    ParagraphSentences: 0.7,
    StartPhrase: 0.8,
    NoMark: 0.6,
}
"""Relative frequency; more for the families that a first model got wrong."""

FAMILIES: Mapping[str, Family] = {kind.id: kind() for kind in _WEIGHTS}

_ALONE = {
    "detectable_format:json_format",
    "detectable_format:constrained_response",
    "language:response_language",
    "own:line_start",
    "own:number_lines",
}
_WITH: Mapping[str, set[str]] = {
    "detectable_format:json_format": {
        *(
            "keywords:existence",
            "keywords:forbidden_words",
            "keywords:frequency",
            "keywords:letter_frequency",
        ),
    },
    "detectable_format:constrained_response": {
        *("punctuation:no_comma", "startend:quotation", "detectable_content:postscript"),
        *("detectable_format:title", "keywords:forbidden_words"),
    },
    "language:response_language": {
        *("startend:quotation", "detectable_format:title", "length_constraints:number_paragraphs"),
        *("detectable_format:number_bullet_lists", "combination:two_responses"),
        "detectable_format:number_highlighted_sections",
    },
    "own:line_start": {
        *("keywords:existence", "keywords:forbidden_words", "keywords:frequency", "punctuation:no_comma"),
        *("change_case:english_lowercase", "own:number_lines"),
    },
    "own:number_lines": {
        *("keywords:existence", "keywords:forbidden_words", "keywords:frequency", "punctuation:no_comma"),
        *("change_case:english_lowercase", "own:line_start", "own:no_mark"),
    },
}
"""The families that those of `_ALONE` may be combined with."""
_APART = (
    {"change_case:english_capital", "change_case:english_lowercase", "change_case:capital_word_frequency"},
    {"change_case:english_capital", "detectable_format:multiple_sections"},
    {"change_case:english_lowercase", "detectable_format:multiple_sections"},
    {
        *("combination:two_responses", "length_constraints:number_paragraphs"),
        *("length_constraints:nth_paragraph_first_word", "detectable_format:multiple_sections"),
    },
    {"combination:repeat_prompt", "startend:quotation"},
    {"combination:repeat_prompt", "length_constraints:nth_paragraph_first_word"},
    {"combination:repeat_prompt", "punctuation:no_comma"},
    {"detectable_content:postscript", "startend:end_checker"},
    {"detectable_format:title", "length_constraints:nth_paragraph_first_word"},
    {"detectable_format:title", "startend:quotation"},
    {"detectable_format:number_bullet_lists", "length_constraints:nth_paragraph_first_word"},
    {"detectable_format:number_bullet_lists", "length_constraints:number_paragraphs"},
    {"detectable_format:number_bullet_lists", "detectable_format:multiple_sections"},
    {"combination:two_responses", "startend:end_checker"},
    {"combination:two_responses", "detectable_format:number_bullet_lists"},
    {"own:start_phrase", "startend:quotation"},
    {"own:start_phrase", "detectable_format:title"},
    {"own:start_phrase", "combination:repeat_prompt"},
    {"own:start_phrase", "length_constraints:nth_paragraph_first_word"},
    {"own:no_mark", "combination:repeat_prompt"},
    {"own:no_mark", "own:start_phrase"},
    {"own:no_mark", "startend:end_checker"},
    {"own:no_mark", "detectable_content:postscript"},
    {"own:no_mark", "detectable_format:number_bullet_lists"},
    {
        *("own:numbered_list", "length_constraints:number_paragraphs", "combination:two_responses"),
        *("length_constraints:nth_paragraph_first_word", "detectable_format:number_bullet_lists"),
        *("detectable_format:multiple_sections", "length_constraints:number_sentences"),
    },
    {
        *("own:paragraph_sentences", "length_constraints:nth_paragraph_first_word", "own:numbered_list"),
        *("detectable_format:number_bullet_lists", "combination:two_responses"),
    },
    {"own:paragraph_sentences", "detectable_format:multiple_sections"},
)
"""Groups of which a prompt takes at most one."""


def wordings(family: str, form: Form | None = None) -> Sequence[tuple[str, str]]:
    """Return the wordings of a family, see `Family.wordings`."""
    return FAMILIES[family].wordings(form)


def choose(count: int, allowed: Sequence[str], rng: random.Random) -> list[Family]:
    """Draw families that go together."""
    chosen: list[str] = []
    while len(chosen) < count:
        fitting = [name for name in allowed if all(_together(name, other) for other in chosen)]
        if count > 1:
            # Most families do not go with these, which would make them rare among several.
            fitting = [name for name in fitting if name not in _ALONE or chosen or rng.random() < 0.5]
        if not fitting:
            break
        weights = [_WEIGHTS[type(FAMILIES[name])] for name in fitting]
        chosen.append(rng.choices(fitting, weights)[0])
    return [FAMILIES[name] for name in chosen]


def worded(family: Family, text: str, request: str, pen: Pen, form: Form) -> Constraint:
    """Return the family with a wording of this form and arguments; any wording if it has none of the form."""
    relation, template = pen.rng.choice(family.wordings(form) or family.wordings())
    given = family.draw(relation, text, request, pen)
    fields = dict(family.fields(given, pen.rng))
    if "{phrase}" in template:
        bare = template.endswith("{phrase}") and pen.chance(0.4)
        mark = "" if bare else pen.rng.choice(['"', '"', "'"])
        fields["phrase"] = f"{mark}{fields['phrase']}{mark}"
    for slot, value in fields.items():
        template = template.replace(f"{{{slot}}}", value)
    if form == "sentence":
        template = template[0].upper() + template[1:]
    return Constraint(family, given, template, form)


def _together(one: str, other: str) -> bool:
    if one == other or any(one in group and other in group for group in _APART):
        return False
    return all(b in _WITH[a] for a, b in ((one, other), (other, one)) if a in _ALONE)
