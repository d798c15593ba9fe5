"""Which rows of a batch go into which optimizer step, and to which process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tirjudge_training.processes import Processes

T = TypeVar("T")


def dealt(rows: Sequence[T], *, steps: int, processes: Processes, seed: int) -> list[T]:
    """This process's share of a generation batch, laid out for TRL to shuffle.

    The whole batch is put into a random order and cut into `steps` optimizer steps, and each of those into
    the shares of the processes: a step has the same rows however many processes there are. TRL shuffles
    what a process gives it by `torch.randperm`; `seed_shuffle(seed)` right before makes that the permutation
    that is undone here. The number of rows is a multiple of steps times processes.
    """
    import torch

    def order(count: int) -> list[int]:
        permutation = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return permutation.tolist()

    each = len(rows) // (steps * processes.world)
    mixed = [rows[i] for i in order(len(rows))]
    starts = [(step * processes.world + processes.rank) * each for step in range(steps)]
    wanted = [row for start in starts for row in mixed[start : start + each]]
    laid = dict(zip(order(len(wanted)), wanted, strict=True))
    return [laid[i] for i in range(len(wanted))]


def seed_shuffle(seed: int) -> None:
    """See `dealt`."""
    import torch

    torch.manual_seed(seed)
