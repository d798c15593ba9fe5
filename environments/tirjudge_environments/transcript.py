"""A trajectory as trainers want it: aligned ids, mask and logprobs, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tirjudge_environments.types import By, Trajectory


@dataclass(frozen=True, slots=True)
class Transcript:
    """Token by token, exactly as sampled; the three completion fields have one length."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    """What the model and the sandbox wrote, in order."""
    mask: tuple[int, ...]
    """1 where the model wrote, 0 where the sandbox did."""
    logprobs: tuple[float, ...] | None
    """Natural logarithms, 0.0 where the sandbox wrote; None when a turn came without them."""

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Raises ValueError for a trajectory of an endpoint that does not tell its token ids."""
        ids: list[int] = []
        mask: list[int] = []
        logprobs: list[float] | None = []
        for segment in trajectory.segments:
            if segment.ids is None:
                raise ValueError("this trajectory has no token ids: its generator speaks text only")
            ids += segment.ids
            by_model = segment.by is By.MODEL
            mask += [int(by_model)] * len(segment.ids)
            if by_model and segment.logprobs is None:
                logprobs = None
            elif logprobs is not None:
                logprobs += segment.logprobs if by_model and segment.logprobs else [0.0] * len(segment.ids)
        if trajectory.prompt_ids is None:
            raise ValueError("this trajectory has no prompt ids: its generator speaks text only")
        return cls(
            trajectory.prompt_ids, tuple(ids), tuple(mask), None if logprobs is None else tuple(logprobs)
        )
