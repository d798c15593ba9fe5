"""Editors that repair one constraint of IFEval in a real answer that fails it.

As in `breaks`, a way yields answers with growing edits and the caller takes the first that passes everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from research.smol.breaks import Edit, Way, add_sentences, drop_sentences, join_sentences, split_sentences
from research.smol.passages import (
    growing,
    inserting,
    matches,
    removing,
    replacing,
    sentences,
    substitute,
    words,
)

_STEPS = 240


def _more(edit: Edit) -> bool:
    """Return True if the answer has too little of what is counted."""
    return not any(value == "less than" for value in edit.arguments.values())


def _everywhere(pattern: str, new: str, flags: re.RegexFlag = re.IGNORECASE) -> Way:
    """Return a way that replaces all matches at once."""

    def way(edit: Edit) -> Iterator[str]:
        yield re.sub(pattern, new, edit.text, flags=flags)

    return way


def _commas_to_marks(edit: Edit) -> Iterator[str]:
    text = re.sub(r"(?<=\d),(?=\d)", "", edit.text)
    yield re.sub(r"\s*,\s*(?=\w)", lambda _: edit.draw.choice([" ", " - ", "; "]), text).replace(",", "")


def _add_keywords(edit: Edit) -> Iterator[str]:
    wanted = edit["keywords"] if "keywords" in edit.arguments else [edit["keyword"].strip()]
    missing = [word for word in wanted if word.lower() not in edit.text.lower()] or wanted
    phrases = [f"Remember the {word} too." for word in missing] + [f"Again: {word}." for word in missing]
    return inserting(edit.text, phrases * 6, edit.draw)


def _keyword_count(edit: Edit) -> Iterator[str]:
    if _more(edit):
        return _add_keywords(edit)
    found = matches(re.escape(edit["keyword"].strip()), edit.text)
    return replacing(edit.text, found, lambda _: "it", edit.draw)


def _forbidden(edit: Edit) -> list[tuple[int, int]]:
    pattern = "|".join(rf"\b{re.escape(word)}\b" for word in edit["forbidden_words"])
    return matches(pattern, edit.text)


def _replace_forbidden(edit: Edit) -> Iterator[str]:
    yield substitute(edit.text, _forbidden(edit), lambda _: edit.draw.choice(["this", "that", "it"]))


def _remove_forbidden(edit: Edit) -> Iterator[str]:
    *_, bare = removing(edit.text, _forbidden(edit), edit.draw)
    yield bare


def _letters(edit: Edit) -> Iterator[str]:
    letter = edit["letter"].lower()
    if _more(edit):
        if not letter.isalpha():
            return replacing(edit.text, words(edit.text, 4), lambda word: f"{letter}{word}", edit.draw)
        rich = sorted(edit.donors[:400], key=lambda sentence: -sentence.lower().count(letter))
        return inserting(edit.text, rich[:_STEPS], edit.draw)
    holding = [span for span in words(edit.text) if letter in edit.text[slice(*span)].lower()]
    return removing(edit.text, holding, edit.draw)


def _drop_sentences_with_letter(edit: Edit) -> Iterator[str]:
    letter = edit["letter"].lower()
    if _more(edit):
        return iter(())
    rich = sorted(sentences(edit.text), key=lambda span: -edit.text[slice(*span)].lower().count(letter))
    return (
        substitute(edit.text, sorted(rich[:count]), lambda _: "").strip() for count in range(1, len(rich))
    )


def _sentence_count(edit: Edit) -> Iterator[str]:
    return add_sentences(edit) if _more(edit) else drop_sentences(edit)


def _sentence_joints(edit: Edit) -> Iterator[str]:
    return split_sentences(edit) if _more(edit) else join_sentences(edit)


def _drop_last_sentences(edit: Edit) -> Iterator[str]:
    if _more(edit):
        return
    for start, _ in reversed(sentences(edit.text)):
        yield edit.text[:start].rstrip()


def _drop_words(edit: Edit) -> Iterator[str]:
    if _more(edit):
        return iter(())
    return removing(edit.text, words(edit.text, 2)[:_STEPS], edit.draw)


def _separators(edit: Edit) -> Iterator[str]:
    """Put `***` between paragraphs or remove it, in as many places as it takes."""
    bare = re.sub(r"\n*\s*\*\*\*+\s*\n*", "\n\n", edit.text)
    gaps = matches(r"\n\n+", bare)
    for some in growing(gaps, edit.draw):
        yield substitute(bare, some, lambda _: "\n\n***\n\n")
    yield from replacing(edit.text, matches(r"\s*\*\*\*\s*", edit.text), lambda _: "\n\n", edit.draw)
    spaces = [(end, end + 1) for _, end in sentences(bare) if bare[end : end + 1] in (" ", "\n")]
    for some in growing(spaces, edit.draw):
        yield substitute(bare, some, lambda _: "\n\n***\n\n")


def _paragraph(edit: Edit) -> Iterator[str]:
    """Give a paragraph its first word, and merge or split paragraphs until their number is right."""
    parts = [part.strip() for part in edit.text.split("\n\n") if part.strip()]
    wanted, place, word = edit["num_paragraphs"], edit["nth_paragraph"] - 1, edit["first_word"].capitalize()
    while len(parts) > wanted:
        parts[-2:] = [f"{parts[-2]}\n{parts[-1]}"]
    for donor in edit.donors[: max(0, wanted - len(parts))]:
        parts.append(donor)
    if place < len(parts) and not parts[place].lower().startswith(word.lower()):
        parts[place] = f"{word}: {parts[place]}"
    yield "\n\n".join(parts)


def _placeholders(edit: Edit) -> Iterator[str]:
    return replacing(edit.text, words(edit.text, 6), lambda word: f"[{word}]", edit.draw)


def _bullets(edit: Edit) -> Iterator[str]:
    """Turn numbered lines into bullets, then remove or add bullets."""
    marked = re.sub(r"^[ \t]*(?:\d+[.)]|•)(?= )", "*", edit.text, flags=re.MULTILINE)
    yield marked
    for text in dict.fromkeys((edit.text, marked)):
        lines = matches(r"^[ \t]*[*-](?!\*).*(?:\n|$)", text, re.MULTILINE)
        yield from removing(text, lines, edit.draw)
        for count in range(1, edit["num_bullets"] + 1):
            yield "\n".join([text.rstrip(), *(f"* {donor}" for donor in edit.donors[:count])])


def _highlights(edit: Edit) -> Iterator[str]:
    return replacing(edit.text, words(edit.text, 6), lambda word: f"*{word}*", edit.draw)


def _sections(edit: Edit) -> Iterator[str]:
    name = edit["section_spliter"].strip()
    starts = [0, *(end for _, end in matches(r"\n\n+", edit.text))]
    for count in range(1, len(starts) + 1):
        text = edit.text
        for number, at in reversed(list(enumerate(starts[:count], 1))):
            text = f"{text[:at]}{name} {number}\n{text[at:]}"
        yield text


def _repeat(edit: Edit) -> Iterator[str]:
    request = edit["prompt_to_repeat"].strip()
    start = edit.text.lower().find(request.lower()[:40])
    if 0 <= start < 120:
        yield edit.text[start:]
        yield request + edit.text[min(len(edit.text), start + len(request)) :]
    yield f"{request}\n\n{edit.text}"


def _two(edit: Edit) -> Iterator[str]:
    donors = " ".join(edit.donors[:2])
    parts = [part.strip() for part in edit.text.split("******") if part.strip()]
    yield "\n\n******\n\n".join(parts[:2])
    for start, end in matches(r"\n\s*(?:\*{3,}|-{3,}|_{3,})\s*\n", edit.text):
        yield f"{edit.text[:start]}\n\n******\n\n{edit.text[end:]}"
    for _, end in matches(r"\n\n+", edit.text):
        yield f"{edit.text[:end].rstrip()}\n\n******\n\n{edit.text[end:]}"
    yield f"{edit.text.rstrip()}\n\n******\n\n{donors}"


def _constrained(edit: Edit) -> Iterator[str]:
    answer = edit.draw.choice(["yes", "no", "maybe"])
    yield re.sub(r"My answer is[^.]*\.", f"My answer is {answer}.", edit.text, count=1)
    yield f"{edit.text.rstrip()} My answer is {answer}."


def _capital_words(edit: Edit) -> Iterator[str]:
    if _more(edit):
        return replacing(edit.text, words(edit.text, 2)[:_STEPS], str.upper, edit.draw)
    found = [span for span in words(edit.text) if edit.text[slice(*span)].isupper()]
    return replacing(edit.text, found, str.lower, edit.draw)


def _end(edit: Edit) -> Iterator[str]:
    phrase = edit["end_phrase"].strip()
    found = matches(re.escape(phrase), edit.text)
    if found:
        yield edit.text[: found[-1][1]]
    yield f"{edit.text.rstrip()} {phrase}"
    yield f"{edit.text.rstrip()}\n\n{phrase}"


def _all_letters(upper: bool) -> Way:
    def way(edit: Edit) -> Iterator[str]:
        yield edit.text.upper() if upper else edit.text.lower()

    return way


REPAIRS: dict[str, tuple[Way, ...]] = {
    "keywords:existence": (_add_keywords,),
    "keywords:forbidden_words": (_replace_forbidden, _remove_forbidden),
    "keywords:frequency": (_keyword_count,),
    "keywords:letter_frequency": (_letters, _drop_sentences_with_letter),
    "length_constraints:number_paragraphs": (_separators,),
    "length_constraints:number_words": (_sentence_count, _drop_last_sentences, _drop_words),
    "length_constraints:number_sentences": (_sentence_count, _sentence_joints, _drop_last_sentences),
    "length_constraints:nth_paragraph_first_word": (_paragraph,),
    "detectable_content:number_placeholders": (_placeholders,),
    "detectable_format:number_bullet_lists": (_bullets,),
    "detectable_format:constrained_response": (_constrained,),
    "detectable_format:number_highlighted_sections": (_highlights,),
    "detectable_format:multiple_sections": (_sections,),
    "combination:repeat_prompt": (_repeat,),
    "combination:two_responses": (_two,),
    "change_case:english_capital": (_all_letters(upper=True),),
    "change_case:english_lowercase": (_all_letters(upper=False),),
    "change_case:capital_word_frequency": (_capital_words,),
    "startend:end_checker": (_end,),
    "punctuation:no_comma": (_everywhere(r",", ""), _everywhere(r",\s+", " - "), _commas_to_marks),
}
"""Ways to repair a constraint, by family; only families that GPT-4 fails and that an edit can repair."""
