"""Generated judging tasks from the checkable constraints; each a function of (split, seed, index)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tirjudge_environments import JudgeTask, Message, derive_seed
from tirjudge_environments.constraints import FAMILIES, SPLITS, Constraint, Split
from tirjudge_training.grouping import Draw

CANDIDATES = {"tir-pairwise": 2, "tir-pointwise": 2, "tir-listwise": 4}
"""Format to the number of candidates, exactly one of which keeps the constraint.

The responses of a pointwise pair are shown one at a time, and their reward links them.
"""
MIXTURE = ("tir-pairwise",) * 4 + ("tir-pointwise", "tir-listwise")


def task(split: str, format: str, index: int, seed: int) -> JudgeTask:
    """Task number `index`; the families take turns.

    `split` is `train` or `heldout`: they share no word, no letter, no threshold and no wording, hence no
    prompt. The id is `split/format/family/seed/index`, and `gold["family"]` names the family.
    """
    half = SPLITS[split]
    rng = Random(derive_seed("synthesis", split, format, seed, index))
    family = list(FAMILIES.values())[index % len(FAMILIES)]
    constraint = family.draw(rng, half)
    count = CANDIDATES[format]
    label = rng.randrange(count)
    return JudgeTask(
        id=f"{split}/{format}/{family.name}/{seed}/{index}",
        prompt=(Message("user", _request(rng, half, constraint)),),
        candidates=tuple(constraint.write(rng, half, good=position == label) for position in range(count)),
        label=label,
        domain=family.domain,
        gold={"family": family.name},
    )


def tasks(split: str, format: str, n: int, seed: int) -> list[JudgeTask]:
    """The first `n` tasks of one format."""
    return [task(split, format, index, seed) for index in range(n)]


def train_draw(
    index: int, seed: int, *, formats: Sequence[str] = MIXTURE, families: Sequence[str] = tuple(FAMILIES)
) -> Draw:
    """Element `index` of the endless training stream; formats and families are drawn evenly from these.

    By default pairs 4 : single 1 : lists of four 1, and every family alike.
    """
    format = Random(derive_seed("mixture", seed, index)).choice(formats)
    family = Random(derive_seed("family", seed, index)).choice(families)
    place = list(FAMILIES).index(family)
    return Draw(format, task("train", format, index * len(FAMILIES) + place, seed))


def heldout_tasks(format: str, n: int, seed: int) -> list[JudgeTask]:
    """`n` tasks on words, thresholds and wordings that training never sees."""
    return tasks("heldout", format, n, seed)


def _request(rng: Random, split: Split, constraint: Constraint) -> str:
    """The judged prompt. One that reading decides is a whole request, the others are added to a topic."""
    if not constraint.family.checkable:
        return constraint.text
    return f"Write about the {split.word(rng)}. {constraint.text}"
