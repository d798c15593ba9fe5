"""Checkers: rules that programs decide without a model, written once and run on every row."""

from __future__ import annotations

from tirjudge_environments.checkers.file import Checker, CheckerFile, Match, Measurement
from tirjudge_environments.checkers.rules import RulePattern
from tirjudge_environments.checkers.runner import Case, CheckerRunner, CheckersDown
from tirjudge_environments.programs.checks import CheckOutcome

__all__ = [
    "Case",
    "CheckOutcome",
    "Checker",
    "CheckerFile",
    "CheckerRunner",
    "CheckersDown",
    "Match",
    "Measurement",
    "RulePattern",
]
