"""A verifier: one checkable constraint with its arguments, which a response keeps or breaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Relation = Literal["less than", "at least"]
"""How a count must compare with its threshold."""


class Verifier(Protocol):
    """Decides without a model: the same response gets the same answer on every machine, every time."""

    def holds(self, response: str) -> bool:
        """Whether a response keeps the constraint; any text at all, and time linear in its length."""
        ...


class Instruction(BaseModel, ABC):
    """One of IFEval's 25 instructions (Zhou et al. 2023, Table 1); the fields are its arguments.

    It decides as the registry that its authors released does, but for what that one draws at random (see
    `LetterFrequency` and `detected_language`) and for words of a row, which are text here and not patterns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: ClassVar[str]
    """As rows name it: `group:instruction`."""

    @abstractmethod
    def holds(self, response: str) -> bool: ...


def compares(count: int, relation: Relation, threshold: int) -> bool:
    return count < threshold if relation == "less than" else count >= threshold
