"""The families: wordings, edits, and programs that agree with the project's verifiers."""

from __future__ import annotations

import random
import re

import pytest

from research.smol.training_rows.families.base import Constraint
from research.smol.training_rows.families.registry import FAMILIES, Form, choose, worded, wordings
from research.smol.training_rows.prompts import joined
from research.smol.training_rows.rows import PAIRWISE, POINTWISE, Draft, confirmed, program
from research.smol.training_rows.writing import Pen, compose
from tirjudge_environments.instruction_checks import IFEVAL

REQUEST = "Write a blog post about houseplants."
WORDS = "anchor quartz jigsaw velvet kitchen box proof cloud winter yellow zip"
VOCABULARY = WORDS.split()


def pen(seed: int) -> Pen:
    return Pen(random.Random(seed), "houseplants", "home", vocabulary=VOCABULARY)


def drawn(name: str, seed: int) -> tuple[Constraint, str, Pen]:
    one = pen(seed)
    form: Form = ("sentence", "clause", "sentence", "fragment")[seed % 4]
    text = compose(one, one.rng.choice(["text", "list", "letter"]), one.rng.choice([40, 90, 150]))
    return worded(FAMILIES[name], text, REQUEST, one, form), text, one


def edited(constraint: Constraint, text: str, keep: bool, one: Pen) -> str | None:
    """Edit as the generator does: an edit may fail and is then repeated."""
    for _ in range(8):
        changed = constraint.edit(text, keep, one)
        if constraint.verified(changed) == keep:
            return changed
    return None


def test_all_families_of_ifeval_are_there() -> None:
    assert {name for name in FAMILIES if not name.startswith("own:")} == set(IFEVAL)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_many_wordings_without_open_slots(name: str) -> None:
    found = wordings(name)
    assert len(found) >= 14
    assert len({template for _, template in found}) == len(found)
    slots = {
        slot
        for _, template in [*found, *wordings(name, "clause")]
        for slot in re.findall(r"\{\w+\}", template)
    }
    for seed in range(40):
        constraint, _, _ = drawn(name, seed)
        # Users also write {number} for a number of their own.
        assert not any(slot in constraint.wording for slot in slots - {"{number}"}), constraint.wording


@pytest.mark.parametrize("name", FAMILIES)
def test_a_wording_names_what_the_program_checks(name: str) -> None:
    """Every literal argument is written in the prompt, since the judge has to copy it from there."""
    for seed in range(30):
        constraint, _, _ = drawn(name, seed)
        lower = constraint.wording.lower()
        for key in ("words", "word", "letter", "splitter", "first", "phrase", "language", "marker"):
            value = constraint.given.get(key, [])
            for one in [value] if isinstance(value, str) else value:
                assert one.lower() in lower


@pytest.mark.parametrize("name", FAMILIES)
def test_edits_follow_and_break_the_constraint_and_the_program_agrees(name: str) -> None:
    drafts = []
    for seed in range(12):
        constraint, text, one = drawn(name, seed)
        good, bad = (edited(constraint, text, keep, one) for keep in (True, False))
        if good is None or bad is None:
            continue
        # An empty response keeps nothing, whatever the verifier says.
        assert [constraint.verified(response) for response in (good, bad, " ")] == [True, False, False]
        for environment in (PAIRWISE, POINTWISE):
            source = program([constraint], environment)
            kept = [1, 0]
            drafts.append(
                Draft(
                    REQUEST,
                    [good, bad],
                    0,
                    "instruction-following",
                    environment,
                    [name],
                    "own",
                    source,
                    kept,
                    1,
                )
            )
    assert len(drafts) >= 16
    agreed = confirmed(drafts, lambda line: None)
    # The program counts sentences, words in capitals and languages in its own, simpler way.
    assert sum(agreed) >= 0.75 * len(drafts), name


def test_prompts_hold_the_request_and_all_wordings() -> None:
    for seed in range(60):
        one = pen(seed)
        families = choose(3, list(FAMILIES), one.rng)
        assert len({family.id for family in families}) == len(families)
        text = compose(one, "text", 80)
        form: Form = ("sentence", "fragment", "clause")[seed % 3]
        if not all(wordings(family.id, form) for family in families):
            form = "sentence"
        constraints = [worded(family, text, REQUEST, one, form) for family in families]
        prompt = joined(REQUEST, constraints, one.rng, form)
        assert REQUEST[:-1] in prompt
        assert all(constraint.wording[1:] in prompt for constraint in constraints)


def test_words_that_differ_in_case_alone_are_one_word() -> None:
    few = {seed: Pen(random.Random(seed), "tides", "home", vocabulary=["sea"]) for seed in range(200)}
    drawn_words = [FAMILIES["keywords:existence"].draw("", "", "", one)["words"] for one in few.values()]
    assert all(drawn_words)
