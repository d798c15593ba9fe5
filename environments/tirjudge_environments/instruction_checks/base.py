"""The interface of a verifier: one checkable instruction with its arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Relation = Literal["less than", "at least"]
"""The comparison of a count with its threshold."""


class Verifier(Protocol):
    """A check of one instruction without a model, with the same result on every machine and every time."""

    def holds(self, response: str) -> bool:
        """Return True if the response follows the instruction, for any text, in time linear in its length."""
        ...


class Instruction(BaseModel, ABC):
    """One of IFEval's 25 instructions (Zhou et al. 2023, Table 1); the fields are its arguments.

    The result equals that of the registry that the authors released, with two exceptions: what that registry
    draws at random (see `LetterFrequency` and `detected_language`), and words of a row, which are plain text
    here and not patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: ClassVar[str]
    """The name in rows: `group:instruction`."""

    @abstractmethod
    def holds(self, response: str) -> bool: ...


def compares(count: int, relation: Relation, threshold: int) -> bool:
    """Compare a count with its threshold."""
    return count < threshold if relation == "less than" else count >= threshold
