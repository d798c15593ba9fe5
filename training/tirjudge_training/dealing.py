"""The distribution of a batch's rows over optimizer steps and processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tirjudge_training.processes import Processes

T = TypeVar("T")


def dealt(rows: Sequence[T], *, steps: int, processes: Processes, seed: int) -> list[T]:
    """Return this process's share of a generation batch, in an order that undoes TRL's own shuffle.

    The batch is shuffled and cut into `steps` optimizer steps, and each step into one share per process: a
    step has the same rows for any number of processes. TRL shuffles a process's rows with `torch.randperm`;
    calling `seed_shuffle(seed)` right before makes that the permutation that is undone here. The number of
    rows must be a multiple of steps times processes.
    """
    import torch

    def order(count: int) -> list[int]:
        permutation = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return permutation.tolist()

    each = len(rows) // (steps * processes.world)
    mixed = [rows[i] for i in order(len(rows))]
    starts = [(step * processes.world + processes.rank) * each for step in range(steps)]
    wanted = [row for start in starts for row in mixed[start : start + each]]
    # The inverse of the permutation that TRL is about to apply.
    laid = dict(zip(order(len(wanted)), wanted, strict=True))
    return [laid[i] for i in range(len(wanted))]


def seed_shuffle(seed: int) -> None:
    """Seed torch so that TRL's next shuffle is the one that `dealt` undoes."""
    import torch

    torch.manual_seed(seed)
