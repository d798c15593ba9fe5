"""General preferences: rows in which no program helps and the better answer shows at once."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from research.smol.training_rows.prompts import with_context
from research.smol.training_rows.requests import Request
from research.smol.training_rows.rows import LISTWISE, Draft
from research.smol.training_rows.writing import Pen, compose, sentences

FAMILY = "general"
_REFUSALS = (
    "I don't know.",
    "Sorry, I can't help with that.",
    "As I said, no.",
    "???",
    "ok",
    "This is a good question.",
    "Please ask somebody else.",
)


def preference_draft(environment: str, requests: Sequence[Request], rng: random.Random) -> Draft | None:
    """Return a row with one good answer; None if its source's answers are too much alike."""
    request = rng.choice([one for one in requests if one.answers] if rng.random() < 0.45 else requests)
    pen = Pen(rng, request.topic, request.area)
    words = rng.choice([40, 60, 90, 130, 180])
    good = request.answers[0] if request.answers else compose(pen, request.genre, words)
    count = rng.choice([3, 4]) if environment == LISTWISE else 2
    bad = list(dict.fromkeys(_worse(request, good, requests, rng) for _ in range(count - 1)))
    if len(bad) < count - 1 or len(good.split()) < 8 or good in bad or not all(bad):
        return None
    order = rng.sample(range(count), count)
    return Draft(
        prompt=with_context(request.text, rng) if request.source == "own" else request.text,
        responses=[[good, *bad][at] for at in order],
        label=order.index(0),
        domain="helpfulness",
        environment=environment,
        families=[FAMILY],
        source=request.source,
    )


def _worse(request: Request, good: str, requests: Sequence[Request], rng: random.Random) -> str:
    weak = [one for one in request.answers[2:] if len(one.split()) < 0.7 * len(good.split())]
    if weak and rng.random() < 0.6:
        return rng.choice(weak)
    how = rng.random()
    if how < 0.3:
        return _off_topic(request, requests, rng)
    if how < 0.55:
        return good[: int(len(good) * rng.uniform(0.1, 0.6))].rstrip()
    if how < 0.75:
        once = rng.choice(sentences(good))
        return " ".join([once] * rng.randint(4, 14))
    if how < 0.9:
        words = re.findall(r"\w+", good)
        rng.shuffle(words)
        return " ".join(words)
    return rng.choice(_REFUSALS)


def _off_topic(request: Request, requests: Sequence[Request], rng: random.Random) -> str:
    other = rng.choice([one for one in requests if one.area != request.area])
    if other.answers:
        return other.answers[0]
    return compose(Pen(rng, other.topic, other.area), request.genre, rng.choice([60, 120, 180, 250]))
