"""Votes: which one counts, and what it is worth."""

from __future__ import annotations

import numpy as np

from tirjudge.evaluation.base import Judged, Unfit, Vote
from tirjudge_environments.types import derive_seed

_DRAW = "evaluation order"


def drawn_vote(row: Judged, *, sample: int = 0, seed: int = 0) -> Vote:
    """One vote of a sample; where the row was judged in several orders, a seeded draw by its id."""
    votes = row.sample(sample)
    if not votes:
        raise Unfit(f"row {row.id!r} was not judged")
    if len(votes) == 1:
        return votes[0]
    draw = np.random.default_rng(derive_seed(seed, _DRAW, row.id))
    return votes[int(draw.integers(len(votes)))]


def sampled_votes(row: Judged) -> list[Vote]:
    """One vote of every sample, all in the same order; raises Unfit without any."""
    return [drawn_vote(row, sample=sample) for sample in row.samples or (0,)]


def own_order(row: Judged) -> Vote:
    """The vote on the candidates as the row gives them; raises Unfit without one."""
    return _ordered(row, tuple(range(row.candidates)), "its own order")


def reversed_order(row: Judged) -> Vote:
    """The vote on the candidates the other way round; raises Unfit without one."""
    return _ordered(row, tuple(reversed(range(row.candidates))), "the reversed order")


def credit(vote: Vote, label: int, *, share_ties: bool) -> float:
    """1 for the label; with `share_ties` 1 / k for a tie of k that holds it; else 0."""
    if vote.tie and not share_ties:
        return 0.0
    return 1 / len(vote.best) if label in vote.best else 0.0


def outcome(vote: Vote) -> str | None:
    """`tie` or `no verdict`, as the counts name them; None for a choice."""
    if vote.tie:
        return "tie"
    return None if vote.best else "no verdict"


def _ordered(row: Judged, order: tuple[int, ...], name: str) -> Vote:
    for vote in row.sample():
        if vote.order == order:
            return vote
    if not all(vote.order for vote in row.sample()):
        raise Unfit(f"the responses of row {row.id!r} were judged alone, and so in no order")
    raise Unfit(f"row {row.id!r} was not judged in {name}: judge it with --order both")
