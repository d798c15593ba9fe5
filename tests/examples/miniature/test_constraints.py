"""Constraint families: verifiers on hand-made cases, writers and programs that agree, and splits."""

from __future__ import annotations

from random import Random

import pytest

from examples.miniature.constraints import CHECKABLE, FAMILIES, HELD_OUT, TRAIN, Family, Slots
from examples.miniature.constraints.words import HELD_OUT_WORDS, TRAIN_WORDS
from tests.rows import each_row
from tirjudge_environments import TirListwise, TirPairwise, TirPointwise
from tirjudge_environments.types import Completion, Finish, JudgeTask, Message, RunCode
from tirjudge_sandbox import Program, open_sandbox

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


FORMATS = ((TirPointwise, "pointwise", 1), (TirPairwise, "pairwise", 2), (TirListwise, "listwise", 4))


def judged(family: Family, shown: str, count: int, seed: int) -> tuple[Program, list[bool]]:
    """Return a program with a session's variables, and the verifier's result for each response."""
    rng, split = Random(seed), (TRAIN, HELD_OUT)[seed % 2]
    constraint = family.draw(rng, split)
    candidates = tuple(constraint.write(rng, split, good=rng.random() < 0.5) for _ in range(count))
    task = JudgeTask(id=str(seed), prompt=(Message("user", constraint.text),), candidates=candidates)
    environment = next(kind for kind, name, _ in FORMATS if name == shown)(prompts="mini")
    view = environment.views(task)[0]
    text = f"```python\n{family.program(shown)}\n```\n"
    reading = environment.read(task, view, Completion(text=text, finish=Finish.STOP))
    assert isinstance(reading, RunCode)
    verdicts = [constraint.holds(candidates[index]) for index in view.order]
    return Program(source=reading.source, bindings=reading.bindings), verdicts


@pytest.mark.slow
async def test_programs_print_the_verifiers_answers() -> None:
    async with open_sandbox(preload=()) as sandbox:
        for family in CHECKABLE:
            for seed in range(4):
                for _, shown, count in FORMATS:
                    program, expected = judged(family, shown, count, seed)
                    execution = await sandbox.run(program)
                    assert execution.stdout.split() == printed(shown, expected), (family.name, program)


def printed(shown: str, expected: list[bool]) -> list[str]:
    """Return the expected output: True or False for each response, or the letters of passing responses."""
    if shown == "listwise":
        return [letter for letter, kept in zip("ABCD", expected, strict=True) if kept]
    return [str(kept) for kept in expected]
