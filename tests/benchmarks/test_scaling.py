"""The simulation of an engine and its sandboxes against closed forms."""

from __future__ import annotations

import random

import pytest

from benchmarks.scaling import Dialogue, Engine, simulate

ENGINE = Engine(total=1000.0, single=50.0)


def half_a_second(drawn: random.Random) -> float:
    return 0.5


@pytest.mark.parametrize(
    ("in_flight", "calls", "sandboxes", "expected"),
    [
        pytest.param(64, 0.0, 1, 1000 / 100, id="all dialogues share the engine"),
        pytest.param(5, 0.0, 1, 5 * 50 / 100, id="each dialogue is as fast as one can be"),
        pytest.param(64, 2.0, 2, 2 / (2 * 0.5), id="two sandboxes limit it"),
        pytest.param(5, 2.0, 9, 5 / (100 / 50 + 2 * 0.5), id="a dialogue takes its tokens and its programs"),
        pytest.param(64, 1.5, 64, 1000 / 100, id="programs that nobody waits for cost nothing"),
    ],
)
def test_judgments_per_second(in_flight: int, calls: float, sandboxes: int, expected: float) -> None:
    found = simulate(
        ENGINE,
        Dialogue(100.0, calls),
        half_a_second,
        sandboxes=sandboxes,
        in_flight=in_flight,
        judgments=3000,
    )
    assert found.judgments_per_second == pytest.approx(expected, rel=0.05)
    assert found.engine_share == pytest.approx(expected * 100 / 1000, rel=0.08)
    # Little's law: programs at once are their rate times their duration.
    assert found.sandbox_share * sandboxes == pytest.approx(expected * calls * 0.5, rel=0.06, abs=1e-9)
