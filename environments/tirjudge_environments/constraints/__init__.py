"""Checkable constraints: instructions that a short program can verify, and two that only reading can.

One family of data for the demonstration model, for data synthesis and for evaluation: wordings, words and
thresholds are cut into a training and a held-out half at once.
"""

from tirjudge_environments.constraints.base import LOOPS, Constraint, Family, Shown, Slots
from tirjudge_environments.constraints.counts import COUNTS
from tirjudge_environments.constraints.keywords import KEYWORDS
from tirjudge_environments.constraints.manners import MANNERS
from tirjudge_environments.constraints.shape import SHAPE
from tirjudge_environments.constraints.words import HELD_OUT, SPLITS, TRAIN, Split

CHECKABLE = (*KEYWORDS, *COUNTS, *SHAPE)
FAMILIES = {family.name: family for family in (*CHECKABLE, *MANNERS)}

__all__ = [
    "CHECKABLE",
    "FAMILIES",
    "HELD_OUT",
    "LOOPS",
    "MANNERS",
    "SPLITS",
    "TRAIN",
    "Constraint",
    "Family",
    "Shown",
    "Slots",
    "Split",
]
