"""Honest programs from the field end well in every placement, but for those that need what it lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from benchmarks.honest_programs import LACKING, PROGRAMS, Honest
from benchmarks.honest_programs.__main__ import ended_well
from tests.sandbox.targets import MARKS, PLACEMENTS
from tirjudge_sandbox import ImportPolicy, Limits, Program, Sandbox
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox

HEAVY = ("sympy", "numpy", "pandas", "scipy", "nltk", "math_verify", "networkx", "pytest")
"""Packages that take long to import, and are the same in all placements of a host."""

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "policy": lambda: LocalSandbox(capacity=2, import_policy=ImportPolicy()),
    "docker": lambda: DockerSandbox(capacity=2),
    **{name: place for name, place in PLACEMENTS.items() if name in ("userns", "own-uid", "plain")},
}
EVERY = 10
LIMITS = Limits(wall_seconds=60)
"""The CPU time decides, since the machine may be busy."""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "step",
    [3 * EVERY, pytest.param(EVERY, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)],
    ids=["few", "some", "all"],
)
@pytest.mark.parametrize(
    "placement",
    [
        pytest.param(name, marks=MARKS[name]) if name in ("docker", "own-uid") and name in MARKS else name
        for name in SANDBOXES
    ],
)
async def test_honest_programs(placement, step, request):
    """`make test` tries every thirtieth of the programs that need nothing special; `make soak` tries all."""
    if placement == "docker":
        request.getfixturevalue("docker_image")
    light = step > EVERY or placement not in ("policy", "docker")
    needy = [one for one in PROGRAMS if one.needs]
    programs = [
        one
        for one in {one.name: one for one in (*needy, *PROGRAMS[::step])}.values()
        if not (light and any(name in one.source for name in HEAVY))
    ]
    async with SANDBOXES[placement]() as box:
        ran = await asyncio.gather(*(box.run(_asked(one), LIMITS) for one in programs))
    bad = {one.name: its for one, its in zip(programs, ran, strict=True) if not ended_well(one, its)}
    assert bad.keys() == {one.name for one in programs if one.needs in LACKING[placement]}, bad


def _asked(one: Honest) -> Program:
    return Program(source=one.source, bindings=one.bindings, stdin=one.stdin)


def test_the_list_is_as_long_as_the_documentation_says():
    assert len({one.name for one in PROGRAMS}) == len(PROGRAMS) >= 98
