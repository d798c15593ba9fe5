"""Best-of-N: a judge selects one of N candidates, compared with pass@1, majority vote and the oracle."""

from tirjudge.best_of_n.base import CandidateSet, Grade, Method, Referee, RefereeUnavailable, Selection
from tirjudge.best_of_n.methods import METHODS, Knockout, Pointwise, RoundRobin, majority, open_method
from tirjudge.best_of_n.one_prompt import abest_of, best_of

__all__ = [
    "METHODS",
    "CandidateSet",
    "Grade",
    "Knockout",
    "Method",
    "Pointwise",
    "Referee",
    "RefereeUnavailable",
    "RoundRobin",
    "Selection",
    "abest_of",
    "best_of",
    "majority",
    "open_method",
]
