"""Generated judging tasks from the checkable constraints, each a function of split, seed and index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from examples.miniature.constraints import FAMILIES, SPLITS, Constraint, Split
from tirjudge_environments import JudgeTask, Message, derive_seed
from tirjudge_training.rl.dynamic_sampling import FormattedTask

CANDIDATES = {"tir-pairwise": 2, "tir-pointwise": 2, "tir-listwise": 4}
"""Number of candidates per format; exactly one candidate satisfies the constraint.

The two responses of a pointwise task are shown one at a time, and the reward compares their scores.
"""
MIXTURE = {"tir-pairwise": 2, "tir-pointwise": 1, "tir-listwise": 1}
"""Weights of the formats in training; with fewer single responses and lists they are not learned."""


def task(split: str, format: str, index: int, seed: int) -> JudgeTask:
    """Return task number `index`; the families take turns.

    `split` is `train` or `heldout`, which share no word, no letter, no threshold and no wording, hence no
    prompt. The id is `split/format/family/seed/index`, and `gold["family"]` names the family.
    """
    half = SPLITS[split]
    rng = Random(derive_seed("synthesis", split, format, seed, index))
    # In turn instead of at random: every prefix of the stream is balanced over families.
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
    """Return the first `n` tasks of one format."""
    return [task(split, format, index, seed) for index in range(n)]


def train_task(
    index: int,
    seed: int,
    *,
    formats: Mapping[str, float] = MIXTURE,
    families: Sequence[str] = tuple(FAMILIES),
) -> FormattedTask:
    """Return element `index` of the endless training stream: formats by weight, families evenly.

    By default there are two pairs per single response and list of four.
    """
    rng = Random(derive_seed("mixture", seed, index))
    (format,) = rng.choices(list(formats), list(formats.values()))
    family = Random(derive_seed("family", seed, index)).choice(families)
    # `task` takes the family from the index, so the index is chosen to give this family.
    place = index * len(FAMILIES) + list(FAMILIES).index(family)
    return FormattedTask(format, task("train", format, place, seed))


def heldout_tasks(format: str, n: int, seed: int) -> list[JudgeTask]:
    """Return `n` tasks on words, thresholds and wordings that training never sees."""
    return tasks("heldout", format, n, seed)


def _request(rng: Random, split: Split, constraint: Constraint) -> str:
    """Return the judged prompt: a topic with a constraint, or a whole request if only reading decides it."""
    if not constraint.family.checkable:
        return constraint.text
    return f"Write about the {split.word(rng)}. {constraint.text}"
