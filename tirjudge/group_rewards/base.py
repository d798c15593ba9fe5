"""The vocabulary of group rewards: their options, comparisons of two members, methods, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

Pair = tuple[int, int]
"""Two members of a group, by their places."""

TIE = 0.5
"""The share of a win that each of two equal members gets."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two members of a group, and the verdict on them."""

    pair: Pair
    share: float | None
    """The first member's share of the win: 1, 0, or 1/2 for a tie. None without a verdict."""

    def of(self, member: int) -> float | None:
        """Return the share of one of the two members; None without a verdict."""
        if self.share is None:
            return None
        return self.share if member == self.pair[0] else 1 - self.share


class PairMethod(Protocol):
    """A way to choose the pairs of a group that are compared, and to turn the verdicts into rewards.

    Methods are pure functions of their arguments, the group's seed included.
    """

    def least(self, size: int) -> int:
        """Return the fewest comparisons in which every member of a group of `size` takes part."""
        ...

    def comparisons(self, size: int, most: int | None = None) -> int:
        """Return the number of comparisons for a group of `size`, of which at most `most` are made."""
        ...

    def pairs(self, size: int, most: int | None, seed: int, played: Sequence[Comparison]) -> tuple[Pair, ...]:
        """Return the pairs to compare next, all at once, after those `played`; none at the end."""
        ...

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        """Return each member's reward, from 0 to 1; None for a member without any verdict."""
        ...


class GroupOptions(BaseModel):
    """The options of a group reward: the arguments of the reward functions, the fields of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    method: str = "swiss"
    """`round-robin`, `knockout`, `pivot`, `swiss` or `listwise`."""
    both_orders: bool = False
    """Ask every question in both orders, at twice the calls; verdicts that differ are a tie."""
    budget: Annotated[int, Field(ge=1)] | None = None
    """Most judge calls for a group. Round robin and Swiss make as many whole rounds as fit into it; a
    budget within which the method cannot compare every member is an error."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of brackets, byes and pivots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRewards:
    """The rewards of a group, and the calls behind them."""

    rewards: tuple[float | None, ...]
    """One per completion, in their order. None for a completion without any verdict."""
    method: str
    calls: int
    """Judge calls that the method needed: one per dialogue, so two per comparison in both orders."""
    cached: int
    """Those of the calls that were not made, since the same texts were judged before."""
    comparisons: int
    """Questions to the judge: pairs, or 1 for `listwise`."""
    ties: int
    """Questions that ended as a tie."""
    no_verdict: int
    """Questions without a verdict; they have no influence on the rewards."""
    duplicates: int
    """Completions with the text of an earlier one, whose reward they share."""

    def to_dict(self) -> dict[str, Any]:
        """Return the rewards as JSON values: the answer of `/v1/group`."""
        return {name: getattr(self, name) for name in self.__slots__} | {"rewards": list(self.rewards)}
