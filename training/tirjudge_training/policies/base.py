"""The policy as a generator, which follows the trainer's weights."""

from __future__ import annotations

from typing import Literal, Protocol

from tirjudge.generation import Generator

Sampler = Literal["transformers", "vllm", "vllm-server"]


class PolicyGenerator(Generator, Protocol):
    """A generator that tells how long it was at work, and how exactly."""

    @property
    def busy_seconds(self) -> float:
        """Wall time since the start in which tokens were computed, or waited for."""
        ...

    @property
    def precision(self) -> str:
        """What matrix products are computed in: `bfloat16`, ..."""
        ...


class Policy(Protocol):
    """Who samples in a training run."""

    @property
    def generator(self) -> PolicyGenerator: ...

    async def refresh(self) -> None:
        """Sample with the weights as they are now. Raises GeneratorFailed."""
        ...

    async def rest(self) -> None:
        """Give back the memory that nothing but sampling needs, until the next `refresh`."""
        ...

    async def close(self) -> None: ...
