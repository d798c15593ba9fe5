"""The policy interface: a generator that follows the trainer's weights."""

from __future__ import annotations

from typing import Literal, Protocol

from tirjudge.generation import Generator

Sampler = Literal["transformers", "vllm", "vllm-server"]
"""The values of `rl.generator`."""


class PolicyGenerator(Generator, Protocol):
    """A generator that reports its working time and numeric precision."""

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start in which tokens were computed or waited for."""
        ...

    @property
    def precision(self) -> str:
        """The type of matrix products: `bfloat16`, ..."""
        ...


class Policy(Protocol):
    """The sampler of a training run."""

    @property
    def generator(self) -> PolicyGenerator:
        """The generator with the weights of the last `refresh`."""
        ...

    async def refresh(self) -> None:
        """Load the trainer's current weights. Raises GeneratorFailed."""
        ...

    async def rest(self) -> None:
        """Release the memory that only sampling needs, until the next `refresh`."""
        ...

    async def close(self) -> None:
        """Release engine, memory and temporary files."""
        ...
