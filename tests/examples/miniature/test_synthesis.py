"""Generated tasks and warm-up: right labels, the judge's format, real outputs, no held-out text."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from examples.miniature.constraints import CHECKABLE, FAMILIES, HELD_OUT
from examples.miniature.model import build_tokenizer
from examples.miniature.scripted_teacher import MISCONCEPTIONS, Habits, program
from examples.miniature.synthesis import CANDIDATES, heldout_tasks, train_task
from examples.miniature.warmup_corpus import CorpusConfig, corpus, dialogues, reading_example
from tirjudge_environments import StopReason, Trajectory
from tirjudge_environments.types import By
from tirjudge_sandbox import Status, open_sandbox


@pytest.mark.parametrize("format", CANDIDATES)
def test_one_candidate_is_right_and_the_families_take_turns(format: str) -> None:
    sampled = heldout_tasks(format, 50, seed=3)
    assert [t.gold["family"] for t in sampled] == [*FAMILIES, *FAMILIES]
    assert {len(t.candidates) for t in sampled} == {CANDIDATES[format]}
    assert {t.label for t in sampled} == set(range(CANDIDATES[format])), (
        "the right response may be in any position"
    )
    assert len({t.id for t in sampled}) == 50


def test_the_training_stream_mixes_formats_and_families() -> None:
    sampled = [train_task(index, 1) for index in range(1200)]
    formats = Counter(formatted.format for formatted in sampled)
    # The recipe's mixture is 2 : 1 : 1.
    assert formats["tir-pairwise"] == pytest.approx(600, abs=50)
    assert formats["tir-pointwise"] == pytest.approx(300, abs=45)
    assert {formatted.task.gold["family"] for formatted in sampled} == set(FAMILIES)
    assert all(formatted.task.id.split("/")[:2] == ["train", formatted.format] for formatted in sampled)
    assert len({formatted.task.id for formatted in sampled}) == 1200


def test_no_held_out_prompt_or_word_is_in_training() -> None:
    train = [train_task(index, 2).task for index in range(1500)]
    heldout = [t for format in CANDIDATES for t in heldout_tasks(format, 300, 2)]
    assert not {t.prompt for t in train} & {t.prompt for t in heldout}
    texts = " ".join(t.prompt[0].content + " " + " ".join(t.candidates) for t in train).lower()
    words = set("".join(c if c.isalpha() else " " for c in texts).split())
    assert not words & set(HELD_OUT.words)


PERFECT = Habits(careful=1, careless=1, crash=0, misread=0, needless=0)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(0)


async def taught(tokenizer, config: CorpusConfig, count: int) -> list[Trajectory]:
    async with open_sandbox(preload=()) as sandbox:
        return await dialogues(tokenizer, sandbox, config.model_copy(update={"dialogues": count}), 0)


@pytest.mark.slow
async def test_a_perfect_teacher_is_always_right_and_well_formed(tokenizer) -> None:
    """Each of its programs is decisive, so the reward of every pair and list is 1."""
    for trajectory in await taught(tokenizer, CorpusConfig(text_only=0, habits=PERFECT), 120):
        assert trajectory.stop is StopReason.VERDICT
        assert all(call.outcome.status is Status.OK for call in trajectory.calls)
        verdict = trajectory.segments[-1].text
        assert ("keeps it" in verdict) or ("breaks it" in verdict)
        if trajectory.calls:
            assert [s.by for s in trajectory.segments] == [By.MODEL, By.SANDBOX, By.MODEL]
            output = trajectory.calls[0].outcome.stdout.strip()
            assert trajectory.segments[1].text == f"```output\n{output}\n```\n"


@pytest.mark.parametrize("family", CHECKABLE, ids=lambda family: family.name)
def test_the_teachers_share_of_right_programs_is_the_configured_one(family) -> None:
    programs = Counter(program(Random(i), Habits(), family, "pairwise") for i in range(300))
    share = 0.35 if family.name in MISCONCEPTIONS else 0.9
    assert programs[family.program("pairwise")] / 300 == pytest.approx(0.92 * share, abs=0.1)
    if family.name in MISCONCEPTIONS:
        assert programs.most_common(1)[0][0].count(MISCONCEPTIONS[family.name]) == 1


def test_a_reading_example_gives_the_verdict_of_an_output() -> None:
    seen = dict(reading_example(index, 0) for index in range(300))
    assert seen["```output\nFalse\nTrue\n```\nWhich is better?"] == (
        "B keeps it.\n<preference>B</preference>"
    )
    assert seen["```output\nD\n```\nWhich is best?"] == "D keeps it.\n<preference>D</preference>"
    assert seen["```output\nFalse\n```\nHow good is it?"] == "It breaks it.\n<score>2</score>"
    assert seen["```output\nTrue\nTrue\n```\nWhich is better?"].startswith("Maybe ")


@pytest.mark.slow
async def test_the_corpus_is_reproducible_and_has_no_held_out_text(tokenizer) -> None:
    config = CorpusConfig(programs=60, readings=20, dialogues=40)
    async with open_sandbox(preload=()) as sandbox:
        first, second = [await corpus(tokenizer, sandbox, config, 4) for _ in range(2)]
    assert first == second
    assert len(first) == 120
    text = " ".join(tokenizer.decode(sample.ids) for sample in first).lower()
    assert not set("".join(c if c.isalpha() else " " for c in text).split()) & set(HELD_OUT.words)
    wordings = [w for f in FAMILIES.values() for w in f.wordings.of(HELD_OUT) if "{" not in w]
    assert wordings
    assert [wording for wording in wordings if wording in text] == []
