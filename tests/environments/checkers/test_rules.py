"""Patterns of rules: what they match, what they leave to the judge, and the time that hostile texts take."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_environments.checkers.rules import RulePattern, escaped


@pytest.mark.parametrize(
    ("pattern", "rule", "values"),
    [
        ("at least {n:number} words", "at least 60 words", {"n": 60}),
        ("at least {n:number} words", "  at least 1,200 words\n", {"n": 1200}),
        ("at least {n:number} words", "at least Three words", {"n": 3}),
        ("at least {n:number} words", "at least many words", None),
        ("at least {n:number} words", "at least 60 words, please", None),
        ("the word {w:word} {n:number} times", "the word basil 2 times", {"w": "basil", "n": 2}),
        ("the word {w:word} {n:number} times", "the word sweet basil 2 times", None),
        ('end with "{end}"', 'end with "Is that all?"', {"end": "Is that all?"}),
        ("use {{braces}}", "use {braces}", {}),
        ("between {a:number} and {b:number}", "between 3 and 7", {"a": 3, "b": 7}),
        # Two readings: "x" and "y and z", or "x and y" and "z".
        ("say {a} and {b}", "say x and y and z", None),
        ("{n:number} or {n:number}", "5 or 5", {"n": 5}),
        ("{n:number} or {n:number}", "5 or 6", None),
        ("say {a}.", "say .", None),
        ("no commas", "no comma", None),
        ("say ['{a}']", "say ['x']", {"a": "x"}),
        ("say ['{a}']", "say ['x', 'y']", None),
        ("say ['{a}', '{b}']", "say ['x', 'y', 'z']", None),
        ("say [{a}]", "say ['x', 'y']", {"a": "'x', 'y'"}),
    ],
)
def test_a_pattern_matches_a_rule_in_one_way_or_not_at_all(
    pattern: str, rule: str, values: dict[str, Any] | None
) -> None:
    assert RulePattern.parse(pattern).values(rule) == values


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("", "1 to 2000 characters"),
        ("{a}", "match any text"),
        ("say {a}{b}", "follow each other"),
        ("say {response}", "cannot be called response"),
        ("say {n:float}", "text, word, number"),
        ("say {a} or {a:word}", "two kinds"),
        ("say {", "begins or ends no field"),
        ("say }", "begins or ends no field"),
        ("say {A}", "begins or ends no field"),
    ],
)
def test_a_bad_pattern_is_refused_in_one_line(pattern: str, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)) as raised:
        RulePattern.parse(pattern)
    assert "\n" not in str(raised.value)


@given(st.text(min_size=1, max_size=60).filter(str.strip))
def test_the_pattern_of_a_text_matches_it_and_nothing_longer(text: str) -> None:
    pattern = RulePattern.parse(escaped(text))
    assert pattern.values(text) == {}
    assert pattern.values(f"{text}x") is None


@given(st.lists(st.sampled_from(["a", "b", "ab", " and ", "1"]), min_size=1, max_size=7).map("".join))
def test_what_is_matched_is_the_only_reading(text: str) -> None:
    """Splitting the text at each place gives the same two values where there are any, and no others."""
    rule = text.strip()
    splits = [(rule[: one.start()], rule[one.start() + 5 :]) for one in re.finditer("(?= and )", rule)]
    splits = [(a, b) for a, b in splits if a and b]
    found = RulePattern.parse("{a} and {b}").values(rule)
    if found is not None:
        assert splits == [(found["a"], found["b"])]
    elif len(splits) == 1:
        assert any(one != one.strip() for one in splits[0])


def test_no_text_takes_long() -> None:
    """A regular expression `(.+) and (.+) and ...` takes exponential or high polynomial time here."""
    pattern = RulePattern.parse(" and ".join(f"{{f{n}}}" for n in range(12)) + " end")
    started = time.process_time()
    for _ in range(100):
        assert pattern.values(" and ".join("x" * 390) + " and ") is None
    assert time.process_time() - started < 2
