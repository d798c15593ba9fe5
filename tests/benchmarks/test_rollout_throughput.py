"""Other trainers' loops get the prompts of our engine and run its programs; the model writes the same tokens.

Those of verl and verifiers are tested where `.ci/frameworks` installs them.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest

from benchmarks.rollout_throughput.__main__ import TAIL, WAITED, durations, own_run, peer_run
from benchmarks.rollout_throughput.dialogues import Dialogue, Slowed, Workload, batch, memorised
from benchmarks.rollout_throughput.loops import LOOPS
from tirjudge_sandbox import Program, open_sandbox


@pytest.fixture(scope="module")
def workload() -> Workload:
    return memorised([Dialogue.number(0)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason="not installed"))
        for name in LOOPS
    ],
)
async def test_a_loop_does_the_same_work_as_our_engine(name: str, workload: Workload) -> None:
    dialogues = batch(workload, 2)
    ran: list[Any] = []

    class Watched(Slowed):
        async def run(self, program: Program, *limits: Any) -> Any:
            ran.append(await super().run(program, *limits))
            return ran[-1]

    async with open_sandbox("local", preload=(), capacity=2) as sandbox, LOOPS[name](workload) as loop:
        # Both raise unless prompts and tokens are those of the dialogues.
        own = await own_run(workload, dialogues, Watched(sandbox, [0.5]))
        peer = await peer_run(workload, loop, dialogues, Watched(sandbox, [0.5]))
        other = replace(workload, dialogues=[Dialogue.number(1)])
        with pytest.raises(RuntimeError, match="case 1 differs"):
            await peer_run(workload, loop, batch(other, 2), Watched(sandbox, [0.0]))
    assert [one.stdout for one in ran[:4]] == ["3\n"] * 4
    # Nothing is generated while both programs sleep.
    assert own.rate < 2 / 0.5
    assert own.others[WAITED] * 2 / own.rate >= 0.4
    if name == "trl":  # it runs its programs one after the other
        assert peer.rate < 2 / 1.0
        assert peer.others[WAITED] * 2 / peer.rate >= 0.9
    assert loop.name.split()[0].lower() == name


def test_durations_have_a_heavy_tail_and_are_the_same_in_every_run() -> None:
    slept = sorted(durations(TAIL, 999))
    assert slept == sorted(durations(TAIL, 999))
    assert durations("50ms", 2) == [0.05, 0.05]
    # The median of a lognormal distribution is exp(mu), and its 97.7 % quantile exp(mu + 2 sigma).
    assert slept[499] == pytest.approx(0.0498, rel=0.15)
    assert slept[976] == pytest.approx(0.0498 * 20.1, rel=0.4)
