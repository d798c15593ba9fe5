"""Members of a group that hang up: before the group is complete, and while it is judged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tirjudge.selection import arriving_groups
from tirjudge.selection.arriving_groups import ArrivingGroups, MembersMissing
from tirjudge.selection.group_rewards import GroupRewards

COUNTS = {"method": "swiss", "calls": 1, "cached": 0, "comparisons": 1, "ties": 0, "no_verdict": 0}


class Judging:
    """Judges by length, once it is let go."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, ...]] = []
        self.go = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, completions: tuple[str, ...]) -> GroupRewards:
        self.groups.append(completions)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return GroupRewards(rewards=tuple(map(float, map(len, completions))), duplicates=0, **COUNTS)


def join(meeting: ArrivingGroups, judging: Judging, text: str, **more: Any) -> asyncio.Task[Any]:
    options = {"size": 2, "seconds": 5.0, "judge": judging, **more}
    return asyncio.create_task(meeting.join("g", text, text, **options))


async def test_a_member_that_hangs_up_before_the_group_is_complete_is_no_member() -> None:
    meeting, judging = ArrivingGroups(), Judging()
    judging.go.set()
    gone = join(meeting, judging, "x")
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    found = await asyncio.gather(join(meeting, judging, "yy"), join(meeting, judging, "zzz"))
    assert judging.groups == [("yy", "zzz")]
    assert [group.rewards[place] for group, place in found] == [2, 3]


async def test_a_member_whose_place_made_room_for_others_may_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_groups, "_MOST_PLACES", 2)
    meeting, judging = ArrivingGroups(), Judging()
    judging.go.set()
    alone = asyncio.create_task(meeting.join("alone", "x", "x", size=2, seconds=0.05, judge=judging))
    await asyncio.sleep(0)
    await asyncio.gather(join(meeting, judging, "yy"), join(meeting, judging, "zzz"))
    with pytest.raises(MembersMissing, match=r"^1 of 2 completions"):
        await alone


async def test_a_request_that_is_repeated_before_its_first_attempt_ends_is_one_member() -> None:
    meeting, judging = ArrivingGroups(), Judging()
    judging.go.set()
    first, again = join(meeting, judging, "x"), join(meeting, judging, "x")
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    found = await asyncio.gather(again, join(meeting, judging, "yy"))
    assert judging.groups == [("x", "yy")]
    assert [place for _, place in found] == [0, 1]


async def test_a_group_is_judged_for_as_long_as_somebody_waits() -> None:
    meeting, judging = ArrivingGroups(), Judging()
    first, second = join(meeting, judging, "x"), join(meeting, judging, "yy")
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert judging.cancelled == 0
    # The one that hung up asks again, and takes its old place in the group that is being judged.
    again = join(meeting, judging, "x")
    await asyncio.sleep(0.01)
    judging.go.set()
    assert [place for _, place in await asyncio.gather(again, second)] == [0, 1]
    assert len(judging.groups) == 1


async def test_a_group_that_nobody_waits_for_is_cancelled_and_forms_again() -> None:
    meeting, judging = ArrivingGroups(), Judging()
    both = [join(meeting, judging, "x"), join(meeting, judging, "yy")]
    await asyncio.sleep(0.01)
    for one in both:
        one.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    await asyncio.sleep(0)
    assert judging.cancelled == 1
    judging.go.set()
    await asyncio.gather(join(meeting, judging, "x"), join(meeting, judging, "yy"))
    assert len(judging.groups) == 2


async def test_the_time_to_wait_is_that_of_the_members_not_of_the_judge() -> None:
    meeting, judging = ArrivingGroups(), Judging()
    both = [join(meeting, judging, text, seconds=0.05) for text in ("x", "yy")]
    await asyncio.sleep(0.1)
    judging.go.set()
    assert [place for _, place in await asyncio.gather(*both)] == [0, 1]
    with pytest.raises(MembersMissing, match=r"1 of 2 completions of the group arrived within 0.05 s"):
        await join(meeting, judging, "z", seconds=0.05)
