"""Constraint families: verifiers on hand-made cases, writers checked by verifiers, and disjoint splits."""

from __future__ import annotations

from random import Random

import pytest

from examples.miniature.constraints import CHECKABLE, FAMILIES, HELD_OUT, TRAIN, Slots
from examples.miniature.constraints.words import HELD_OUT_WORDS, TRAIN_WORDS
from tests.rows import each_row

CASES = [
    ("contains", Slots("river"), "By the River.", "By the lake."),
    ("lacks", Slots("river"), "By the lake.", "By the River."),
    ("starts", Slots("river"), "River of gold.", "A river of gold."),
    ("ends", Slots("river"), "The gold river...", "The river is gold."),
    ("word-times", Slots("river", 2), "River and river.", "One river."),
    ("letter-at-least", Slots("e", 3), "Even these", "Even so"),
    ("letter-at-most", Slots("e", 2), "Even so", "Even these"),
    ("words-at-least", Slots(number=3), "One two, three.", "One, two."),
    ("words-at-most", Slots(number=3), "One two three", "One two three four"),
    ("words-exactly", Slots(number=3), "One\ntwo three", "One two"),
    ("sentences", Slots(number=2), "It is. It was.", "It is. It was. It will be."),
    ("lines", Slots(number=2), "one\ntwo", "one two"),
    ("bullets", Slots(number=2), "* one\n* two", "* one\ntwo * three"),
    ("characters-at-most", Slots(number=5), "12345", "123456"),
    ("characters-at-least", Slots(number=5), "12345", "1234"),
    ("digits", Slots(number=3), "On 12 of 3", "On 12"),
    ("upper", Slots(), "ALL OF 2.", "ALL of 2."),
    ("lower", Slots(), "all of 2.", "All of 2."),
    ("no-commas", Slots(), "one and two", "one, two"),
    ("quoted", Slots(), '"one"', '"one'),
    ("title", Slots(), "<<one>> two", "<one> two"),
    ("question", Slots(), "Is it?", "Is it? Yes."),
    ("distinct", Slots(), "one two three", "one two one"),
    ("refusal", Slots(), "I cannot help with that. River.", "Sure, here is how. River."),
    ("polite", Slots(), "Thank you for asking. River.", "Go away, you fool. River."),
]


def test_every_family_has_a_hand_made_case() -> None:
    assert [name for name, *_ in CASES] == list(FAMILIES)
    assert len(CHECKABLE) == 23


@each_row("name, slots, kept, broken", CASES)
def test_verifier(name: str, slots: Slots, kept: str, broken: str) -> None:
    assert FAMILIES[name].holds(kept, slots)
    assert not FAMILIES[name].holds(broken, slots)


@pytest.mark.parametrize("split", [TRAIN, HELD_OUT], ids=lambda split: split.name)
@each_row("name", FAMILIES)
def test_writer_keeps_or_breaks_as_asked(name: str, split) -> None:
    for seed in range(60):
        rng = Random(seed)
        constraint = FAMILIES[name].draw(rng, split)
        assert constraint.holds(constraint.write(rng, split, good=True))
        assert not constraint.holds(constraint.write(rng, split, good=False))


@each_row("family", FAMILIES.values())
def test_the_splits_share_no_wording(family) -> None:
    """No word of one split contains a word of the other."""
    train, heldout = (family.wordings.of(split) for split in (TRAIN, HELD_OUT))
    assert train
    assert heldout
    assert [(a, b) for a in train for b in heldout if a in b or b in a] == []


def test_the_splits_share_no_word_letter_or_threshold() -> None:
    assert not set(TRAIN_WORDS) & set(HELD_OUT_WORDS)
    assert not set(TRAIN.letters) & set(HELD_OUT.letters)
    drawn = [{split.number(Random(seed), 2, 50) for seed in range(500)} for split in (TRAIN, HELD_OUT)]
    assert drawn[0] | drawn[1] == set(range(2, 51))
    assert not drawn[0] & drawn[1]
