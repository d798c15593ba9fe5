"""Memory control groups of local workers: the kernel's own memory counts, for all processes together."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from benchmarks.sandbox_memory import ATTACKS, EVERYWHERE, LIMITS
from tests.sandbox.targets import HOARDERS, MIB
from tirjudge_sandbox import Limits, Program, Status
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.workers.memory_group import MemoryGroup

QUICK = Program(source="print('ran')")


def groups() -> set[Path]:
    """The groups that this process has made; other processes test sandboxes at the same time."""
    return set(Path("/sys/fs/cgroup").glob(f"**/tirjudge-{os.getpid()}-*"))


def lookups(count: int, longer: int = 0) -> Program:
    """A program that looks up missing names, `longer` characters longer than they need to be."""
    source = """
import os
for number in range(count):
    try:
        os.stat(f"/usr/lib/{run}-{number}-{'x' * longer}")
    except OSError:
        pass
"""
    # The kernel remembers the names of earlier runs, and would not charge for them again.
    return Program(source=source, bindings={"run": secrets.token_hex(4), "count": count, "longer": longer})


@pytest.fixture
def before() -> set[Path]:
    """The groups of other sandboxes of this process, where this user may make groups."""
    group = MemoryGroup.create()
    if group is None:
        pytest.skip("this user may make no memory control group")
    asyncio.run(group.remove())
    return groups()


def test_full_sockets_of_all_processes_count(before: set[Path]) -> None:
    """Each process holds 7 MiB in sockets, which its own limits of 1 MiB do not count."""

    async def attacked() -> tuple[list[Status], list[str], int, set[Path]]:
        async with LocalSandbox(capacity=1, preload=()) as box:
            limits = Limits(memory_bytes=MIB, processes=24, wall_seconds=20)
            ended = [await box.run(Program(source=HOARDERS), limits), await box.run(QUICK)] * 2
            return [one.status for one in ended], [one.stdout for one in ended], box.stats().lost, groups()

    statuses, printed, lost, during = asyncio.run(attacked())
    assert statuses == [Status.MEMORY_LIMIT, Status.OK] * 2
    assert printed[1] == "ran\n"
    assert lost == 0, "the supervisor must survive its programs"
    assert len(during - before) == 1
    assert not groups() - before


def test_all_processes_together_hold_at_most_twice_the_limit(before: set[Path]) -> None:
    """And 16 MiB, whatever of the kernel's they hold; each may have 16 MiB of its own."""

    async def held() -> int:
        async with LocalSandbox(capacity=1, preload=()) as box:
            await box.run(QUICK, LIMITS)
            (group,) = groups() - before
            version_1 = (group / "memory.max_usage_in_bytes").exists()
            used, peak = ("usage_in_bytes", "max_usage_in_bytes") if version_1 else ("current", "peak")
            warm = int((group / f"memory.{used}").read_text())
            for name in ("objects", "sockets", "pipes", "page tables"):
                await box.run(Program(source=EVERYWHERE + ATTACKS[name]), LIMITS)
            return int((group / f"memory.{peak}").read_text()) - warm

    assert asyncio.run(held()) <= 2 * LIMITS.memory_bytes + 16 * MIB


@pytest.mark.slow
def test_directory_entries_count(before: set[Path]) -> None:
    """The kernel remembers each missing name that is looked up; the group makes it forget the oldest."""

    async def used() -> tuple[int, int]:
        async with LocalSandbox(capacity=1, preload=()) as box:
            ended = await box.run(lookups(300_000), Limits(memory_bytes=MIB, disk_bytes=MIB))
            assert ended.status is Status.OK
            (group,) = groups() - before
            version_1 = (group / "memory.max_usage_in_bytes").exists()
            names = ("max_usage_in_bytes", "limit_in_bytes") if version_1 else ("peak", "max")
            return tuple(int((group / f"memory.{name}").read_text()) for name in names)

    peak, limit = asyncio.run(used())
    # 300,000 entries of 192 bytes are 58 MB, and the limit is below 40 MB.
    assert 0.9 * limit < peak <= limit < 40 * MIB


@pytest.mark.slow
def test_names_that_stay_in_memory_fail_no_later_program(before: set[Path]) -> None:
    """The kernel refuses a limit below what it holds, and would take it back in the next program's time."""

    async def ended() -> list[tuple[Status, str]]:
        found = []
        async with LocalSandbox(capacity=1, preload=()) as box:
            for memory in (512 * MIB, 4 * MIB, 4 * MIB):
                await box.run(lookups(150_000, longer=150), Limits(memory_bytes=512 * MIB, disk_bytes=MIB))
                ran = await box.run(QUICK, Limits(memory_bytes=memory, disk_bytes=MIB))
                found.append((ran.status, ran.stdout))
            assert box.stats().lost == 0
        return found

    assert asyncio.run(ended()) == [(Status.OK, "ran\n")] * 3
    assert not groups() - before


def test_groups_of_killed_hosts_are_removed(before: set[Path]) -> None:
    group = MemoryGroup.create()
    assert group is not None
    parent = Path(group.processes).parents[1]
    abandoned = parent / "tirjudge-4194305-0"  # no process has an id above 2**22
    abandoned.mkdir()
    asyncio.run(group.remove())
    again = MemoryGroup.create()
    assert again is not None
    asyncio.run(again.remove())
    assert not abandoned.exists()
