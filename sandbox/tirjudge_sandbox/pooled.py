"""What the backends of workers share: the pool that runs programs, and what its workers prepare."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge_sandbox.base import Execution, Limits, Program
from tirjudge_sandbox.guest.settings import Preparation
from tirjudge_sandbox.policy import Policy
from tirjudge_sandbox.pool import Pool, PoolStats

_DEFAULT_LIMITS = Limits()


class PooledSandbox:
    """A backend opens `_pool` with workers that have made `_preparation`, and closes it."""

    def __init__(
        self,
        *,
        capacity: int | None,
        preload: Sequence[str],
        programs_per_worker: int,
        unix_sockets: bool,
        policy: Policy | None,
    ):
        self._pool = Pool(capacity, programs_per_worker=programs_per_worker)
        self.capacity = self._pool.capacity
        self._preparation = Preparation(
            preload=tuple(preload),
            unix_sockets=unix_sockets,
            imports=None if policy is None else tuple(sorted(policy.imports)),
        )

    async def run(
        self, program: Program, limits: Limits = _DEFAULT_LIMITS, *, channel: int | None = None
    ) -> Execution:
        """Run one program; see `Sandbox.run`. `channel`: a descriptor to be its standard input instead.

        Raises TypeError for bindings that are no JSON, RuntimeError outside of `async with`.
        """
        return await self._pool.run(program, limits, channel)

    def stats(self) -> PoolStats:
        """Its workers, and programs, now and so far."""
        return self._pool.stats()
