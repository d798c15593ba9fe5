"""The sources sort answers into good and bad ones by their own rules."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tirjudge_environments import Message
from tirjudge_environments.instruction_checks import open_verifier
from tirjudge_training.corpora.answers import FinalAnswers, last_boxed
from tirjudge_training.corpora.base import Skipped, Source, SourceItem
from tirjudge_training.corpora.composition import distinct
from tirjudge_training.corpora.sources.code_and_constraints import FUNCTIONS, Tulu3, TuluRow

FIVE_WORDS = "one two three four five"
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "verify_keywords": ({"keyword_list": ["sea", "sky"]}, "the sea, the sky", "the sea"),
    "verify_keyword_frequency": ({"word": "sea", "N": 2}, "sea and sea", "sea sea sea"),
    "validate_forbidden_words": ({"forbidden_words": ["sea"]}, "the sky", "the sea"),
    "verify_letter_frequency": ({"letter": "x", "N": 2}, "x and x", "xxx"),
    "validate_word_constraint": ({"N": 5, "quantifier": "around"}, f"{FIVE_WORDS} six", "one two three"),
    "verify_sentence_constraint": ({"N": 1, "quantifier": "at most"}, "One.", "One. Two. Three."),
    "verify_postscript": ({"postscript_marker": "P.S."}, "Text.\nP.S. more", "Text."),
    "validate_placeholders": ({"N": 1}, "dear [name]", "dear you"),
    "verify_bullet_points": ({"N": 2}, "* a\n* b", "* a"),
    "validate_title": ({}, "<<Sea>>\ntext", "Sea"),
    "validate_highlighted_sections": ({"N": 1}, "*this*", "this"),
    "validate_json_format": ({}, '{"a": 1}', "a: 1"),
    "validate_repeat_prompt": ({"original_prompt": "Say it."}, "Say it. I do.", "I do."),
    "validate_two_responses": ({}, "one\n******\ntwo", "one"),
    "validate_frequency_capital_words": ({"N": 1, "quantifier": "at least"}, "LOUD words", "quiet words"),
    "validate_end": ({"end_phrase": "Bye."}, "So. Bye.", "Bye. So."),
    "validate_quotation": ({}, '"all"', "all"),
    "validate_no_commas": ({}, "one two", "one, two"),
}


@pytest.mark.parametrize("function", CASES)
def test_tulu_constraints_are_checked_by_ifeval_verifiers(function: str) -> None:
    arguments, followed, broken = CASES[function]
    verifiers = [open_verifier(name, **given) for name, given in FUNCTIONS[function](arguments)]
    assert all(one.holds(followed) for one in verifiers)
    assert not all(one.holds(broken) for one in verifiers)


@pytest.mark.parametrize(
    ("known", "left_out"),
    [
        ({"func_name": "validate_choice", "options": ["yes"]}, "a constraint without a verifier"),
        ({"func_name": "validate_end", "end_phrase": None}, "a constraint without its arguments"),
        ({"func_name": "validate_no_commas", "N": None}, None),
    ],
)
def test_a_constraint_that_cannot_be_checked_is_left_out(known: dict[str, Any], left_out: str | None) -> None:
    row = TuluRow.model_validate(
        {"messages": [{"role": "user", "content": "Hi"}], "ground_truth": json.dumps(known)}
    )
    found = Tulu3().question(row)
    assert isinstance(found, SourceItem) if left_out is None else found == Skipped(left_out)


def test_final_answers_are_compared_as_mathematics() -> None:
    """A text without a final answer is neither right nor wrong."""
    right = ["so \\boxed{\\frac{1}{2}}", "It is $0.5$.", "\\boxed{2/4}"]
    wrong = ["\\boxed{2}", "It is $0.25$."]
    assert FinalAnswers("\\frac12").sort([*right, "I do not know.", *wrong]) == (right, wrong)


@pytest.mark.parametrize(
    ("solution", "boxed"),
    [
        ("first \\boxed{1}, then \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("nothing", None),
        ("\\boxed{never closed", None),
    ],
)
def test_the_last_box_of_a_solution(solution: str, boxed: str | None) -> None:
    assert last_boxed(solution) == boxed


def test_an_answer_that_is_good_and_bad_is_not_a_bad_one() -> None:
    """A short answer to an instruction may also be an answer to its noisy variant."""
    question = SourceItem((Message("user", "hi"),), good=("Hello!", "Hi!"), bad=("Hello!", "Bye!"))
    assert distinct(question) == replace(question, bad=("Bye!",))
    assert distinct(replace(question, bad=("Hi!",))) == Skipped("the same answer is good and bad")
    for other in (replace(question, bad=("Bye!",)), Skipped("toxic")):
        assert distinct(other) is other


def test_the_columns_of_a_source_are_those_of_its_type_unless_it_sets_them() -> None:
    class Named:
        pass

    class Typed(Named, Source[TuluRow]):
        pass

    class Set(Source[TuluRow]):
        row = SourceItem  # type: ignore[assignment]

    class Derived(Set):
        pass

    assert [one.row for one in (Typed, Set, Derived)] == [TuluRow, SourceItem, SourceItem]
