"""Generated judging tasks from the checkable constraints, each a function of split, seed and index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from random import Random

from tirjudge_environments import JudgeTask, Message, derive_seed
from tirjudge_environments.constraints import FAMILIES, SPLITS, Constraint, Split
from tirjudge_training.rl.dynamic_sampling import FormattedTask

CANDIDATES = {"tir-pairwise": 2, "tir-pointwise": 2, "tir-listwise": 4}
"""Number of candidates per format; exactly one candidate satisfies the constraint.

The two responses of a pointwise task are shown one at a time, and the reward compares their scores.
"""
VALIDATION = 0.05
"""Share of the training half's prompts that are held back to choose checkpoints (TIR §5.1)."""
ATTEMPTS = 400
"""Attempts per family to find a held-back prompt; a family with few prompts may have none."""
MIXTURE = {"tir-pairwise": 4.0, "tir-pointwise": 1.0, "tir-listwise": 1.0}
"""Weights of the formats in training."""


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

    By default there are four pairs per single response and list of four. Held-back prompts are left out.
    """
    rng = Random(derive_seed("mixture", seed, index))
    (format,) = rng.choices(list(formats), list(formats.values()))
    family = Random(derive_seed("family", seed, index)).choice(families)
    # `task` takes the family from the index, so the index is chosen to give this family.
    place = index * len(FAMILIES) + list(FAMILIES).index(family)
    attempts = (task("train", format, place, _attempt_seed(seed, attempt)) for attempt in count())
    return FormattedTask(format, next(one for one in attempts if not held_back(one)))


def validation_tasks(format: str, n: int) -> list[JudgeTask]:
    """Return `n` tasks on held-back prompts of the training half, always the same ones."""
    return list(islice(_held_back(format), n))


def held_back(task: JudgeTask) -> bool:
    """Return True if training leaves this prompt out, which depends on the prompt alone."""
    return derive_seed("by prompt", task.prompt[0].content) < VALIDATION * 2**32


def heldout_tasks(format: str, n: int, seed: int) -> list[JudgeTask]:
    """Return `n` tasks on words, thresholds and wordings that training never sees."""
    return tasks("heldout", format, n, seed)


def _held_back(format: str) -> Iterator[JudgeTask]:
    """Yield, for each family in turn, the next task on a held-back prompt."""
    seed = derive_seed("validation tasks")
    # By turns over the families, so that `n` tasks are balanced; a family without such prompts is skipped.
    for index in count():
        attempts = (task("train", format, index, _attempt_seed(seed, attempt)) for attempt in range(ATTEMPTS))
        yield from islice((one for one in attempts if held_back(one)), 1)


def _attempt_seed(seed: int, attempt: int) -> int:
    """Return a new seed for each attempt; the first one keeps the seed of the stream."""
    return derive_seed("again", seed, attempt) if attempt else seed


def _request(rng: Random, split: Split, constraint: Constraint) -> str:
    """Return the judged prompt: a topic with a constraint, or a whole request if only reading decides it."""
    if not constraint.family.checkable:
        return constraint.text
    return f"Write about the {split.word(rng)}. {constraint.text}"
