"""Verifiers of checkable instructions on texts that follow one, texts that break it, and hostile texts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tirjudge_environments.instruction_checks import IFEVAL, followed, open_verifier, verifiers_of

PROMPT = "Name a prime."
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["sea", "C++"]}, "Seas, c++", "sea, C"),
    ("keywords:forbidden_words", {"forbidden_words": ["sea"]}, "seas", "the Sea"),
    ("keywords:forbidden_words", {"forbidden_words": ["C++", "#a"]}, "C or #ab", "I like c++ most."),
    ("keywords:forbidden_words", {"forbidden_words": ["#a"]}, "x#a", "a #A!"),
    ("keywords:frequency", {"keyword": "a.b", "frequency": 2, "relation": "at least"}, "A.b a.b", "a.b aXb"),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "##", "#"),
    ("language:response_language", {"language": "de"}, "Das ist ein schöner Tag.", "What a fine day it is."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb\n***", "a\n***\n***\nb"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "a b", "it's a"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        "Dr. Smith met Mr. Jones on Jan. 5.",
        "He came. He went.",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Well"},
        "One.\n\n'well, two.",
        "Well.\n\nTwo.",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\np. s. more", "Bye. PS more"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a] [b\n]"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n\n  - b", "* a\n** b"),
    ("detectable_format:title", {}, "<<joy>>\ntext", "<<>> <joy>"),
    ("detectable_format:constrained_response", {}, "My answer is no.", "No."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and *b*", "*a* and * *"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
        "Section 1\na\nSection two\nb",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{'a': 1}"),
    ("combination:repeat_prompt", {"prompt_to_repeat": PROMPT}, "name a prime. 7", "7: name a prime."),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("change_case:english_capital", {}, "THIS IS WHAT I THINK OF THE DAY.", "This IS WHAT I THINK."),
    ("change_case:english_lowercase", {}, "this is what i think of the day.", "das ist ein schöner tag."),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "a WELL-KNOWN FACT",
        "a WELL-KNOWN fact",
    ),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So. "the END."', "The end. Or not."),
    ("startend:quotation", {}, '"a"', '"'),
    ("punctuation:no_comma", {}, "a b", "a, b"),
]


@pytest.mark.parametrize(("name", "arguments", "kept", "broken"), CASES, ids=[case[0] for case in CASES])
def test_texts_that_follow_and_break_an_instruction(
    name: str, arguments: dict[str, Any], kept: str, broken: str
) -> None:
    verifier = open_verifier(name, **arguments)
    assert (verifier.holds(kept), verifier.holds(broken)) == (True, False)


def test_the_cases_cover_every_instruction_of_ifeval() -> None:
    assert {case[0] for case in CASES} >= set(IFEVAL)
    assert len(IFEVAL) == 25


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("punctuation:no_comma", {"commas": 1}, "punctuation:no_comma: commas: Extra inputs"),
        ("length_constraints:number_words", {"num_words": 3}, "relation: Field required"),
        ("punctuation:no_comma", {"name": "x"}, "punctuation:no_comma: name: Extra inputs"),
    ],
)
def test_an_impossible_verifier_is_refused_in_one_line(
    name: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        open_verifier(name, **arguments)
    assert "\n" not in str(raised.value)


def test_arguments_that_a_dataset_pads_with_none_are_left_out() -> None:
    row = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None, "relation": None}]}
    assert followed(verifiers_of(row), "a").strict == (True,)


def test_loose_accepts_variants_without_first_line_last_line_or_asterisks() -> None:
    verifiers = [
        open_verifier("startend:end_checker", end_phrase="the end"),
        open_verifier("startend:quotation"),
    ]
    result = followed(verifiers, 'Sure, here:\n*"so, the end"*\nHope it helps!')
    assert (result.strict, result.loose) == ((False, False), (True, True))


HOSTILE = ["", "\0", "\ud800", "[" * 10**5, "\n" * 10**5, "*" * 10**4, "." * 10**4, "é🙂," * 10**4]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{len(text)}-{text[:1]!a}")
def test_any_text_gets_an_answer_in_linear_time(text: str) -> None:
    for name, arguments, _, _ in CASES:
        assert open_verifier(name, **arguments).holds(text) in (True, False)


def test_a_missing_extra_is_one_line_that_names_it() -> None:
    """A separate process is needed, since a process loads the libraries once."""
    code = (
        "import sys; sys.modules['langdetect'] = None\n"
        "from tirjudge_environments.instruction_checks import open_verifier\n"
        "print(open_verifier('punctuation:no_comma').holds('a'))\n"
        "try: open_verifier('language:response_language', language='de').holds('Guten Tag')\n"
        "except ValueError as error: print(error)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[0] == "True"
    assert "pip install 'tirjudge[eval]'" in shown.splitlines()[1]
