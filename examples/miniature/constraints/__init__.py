"""Families of constraints that a short program can check, and two that need reading.

The demonstration model, data synthesis and evaluation share them. Wordings, words and thresholds are split
into a training and a held-out half.
"""

from examples.miniature.constraints.base import LOOPS, Constraint, Family, Shown, Slots
from examples.miniature.constraints.counts import COUNTS
from examples.miniature.constraints.keywords import KEYWORDS
from examples.miniature.constraints.manners import MANNERS
from examples.miniature.constraints.shape import SHAPE
from examples.miniature.constraints.words import HELD_OUT, SPLITS, TRAIN, Split

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
