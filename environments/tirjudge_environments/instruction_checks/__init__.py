"""Checks of instructions that a program can verify: IFEval's 25."""

from tirjudge_environments.instruction_checks.english import MissingExtra
from tirjudge_environments.instruction_checks.ifeval import Verifier
from tirjudge_environments.instruction_checks.registry import (
    IFEVAL,
    Followed,
    followed,
    open_verifier,
    verifiers_of,
)

__all__ = [
    "IFEVAL",
    "Followed",
    "MissingExtra",
    "Verifier",
    "followed",
    "open_verifier",
    "verifiers_of",
]
