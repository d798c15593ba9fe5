"""Groups whose members arrive one by one, from frameworks that score each completion by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tirjudge.selection.group_rewards import GroupRewards

_MOST_PLACES = 10_000
"""Members of groups that are remembered for a request that is repeated; the oldest are dropped first."""


class MembersMissing(RuntimeError):
    """The other completions of a group did not arrive in time; the text is one line."""


@dataclass(slots=True)
class _Gathering:
    members: dict[str, Any] = field(default_factory=dict)
    """Completions by the id of their request."""
    came: set[str] = field(default_factory=set)
    """The ids of all that came, also of members that gave up since."""
    full: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Future[GroupRewards] | None = None
    """The judging of the group, from the moment that it is full."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Number of waiting requests per member. A retry can be in flight at the same time as the original."""


class ArrivingGroups:
    """Gathers the members of groups, and judges a group when its last member is there.

    Belongs to one event loop. A group is judged while the members of others are still being generated.
    """

    def __init__(self) -> None:
        self._open: dict[Hashable, _Gathering] = {}
        self._places: dict[tuple[Hashable, str], _Gathering] = {}

    async def join(
        self,
        group: Hashable,
        member: str,
        completion: Any,
        *,
        size: int,
        seconds: float,
        judge: Callable[[tuple[Any, ...]], Awaitable[GroupRewards]],
    ) -> tuple[GroupRewards, int]:
        """Wait until `size` members of `group` are there; return the group's rewards and the member's place.

        `member` is unique to the request: a repeated request takes its old place. After a full group, the
        next member opens a new group of the same name. Raises MembersMissing after `seconds`, and what
        `judge` raises; the group then forms again from members that are sent again.
        """
        gathering = self._gathering(group, member, completion, size, judge)
        gathering.waiting[member] += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await gathering.full.wait()
            if gathering.work is None:
                raise MembersMissing(
                    f"{len(gathering.came)} of {size} completions of the group arrived within "
                    f"{seconds:g} s: send all of them, from any process, at the same time"
                )
            # Shielded, since the other members wait for the same rewards.
            rewards = await asyncio.shield(gathering.work)
        finally:
            gathering.waiting[member] -= 1
            self._leave(group, member, gathering)
        return rewards, [*gathering.members].index(member)

    def _gathering(
        self,
        group: Hashable,
        member: str,
        completion: Any,
        size: int,
        judge: Callable[[tuple[Any, ...]], Awaitable[GroupRewards]],
    ) -> _Gathering:
        if (group, member) in self._places:
            return self._places[group, member]
        gathering = self._open.setdefault(group, _Gathering())
        gathering.members[member] = completion
        gathering.came.add(member)
        self._places[group, member] = gathering
        if len(gathering.members) == size:
            del self._open[group]
            gathering.work = asyncio.ensure_future(judge(tuple(gathering.members.values())))
            gathering.full.set()
        return gathering

    def _leave(self, group: Hashable, member: str, gathering: _Gathering) -> None:
        if gathering.work is None:
            if gathering.waiting[member]:
                return
            # It gave up before the group was full, so it is no member any more.
            del gathering.members[member]
            # Its place may have made room for newer ones.
            self._places.pop((group, member), None)
            if not gathering.members and self._open.get(group) is gathering:
                del self._open[group]
            return
        if not gathering.waiting.total() and not gathering.work.done():
            gathering.work.cancel()
            self._forget(group, gathering)
        elif gathering.work.done() and (gathering.work.cancelled() or gathering.work.exception()):
            self._forget(group, gathering)
        while len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]

    def _forget(self, group: Hashable, gathering: _Gathering) -> None:
        """Free the places of a group that was not judged, so that its members can be sent again."""
        for member in gathering.members:
            if self._places.get((group, member)) is gathering:
                del self._places[group, member]
