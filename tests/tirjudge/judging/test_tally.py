"""The tally of checkers and their audits: what it keeps of each row, and when it is computed again."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import pytest

from tirjudge.judging.tally import CheckerTally
from tirjudge.statistics.estimators import Credits
from tirjudge.statistics.proportions import Proportion


def audited(number: int, *, agrees: bool, prompt: str = "p") -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": f"{prompt} {number}"}],
        "criteria": [{"checker": "words"}],
        "audit": [{"agrees": agrees}],
    }


def test_the_prompts_of_audited_rows_are_not_kept() -> None:
    """Two audits of each prompt are a cluster all the same."""
    tally = CheckerTally()
    tracemalloc.start()
    try:
        for number in range(600):
            tally.add(audited(number // 2, agrees=number % 4 > 0, prompt="x" * 20_000))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
    found = tally.disagreement
    assert (found.successes, found.n, found.clusters) == (150, 600, 300)
    record = tally.record()
    assert record is not None
    assert [(one["value"], one["n"]) for one in record["halves"]] == [(0.25, 300), (0.25, 300)]


@pytest.mark.timeout(120)
def test_a_limit_is_looked_at_again_after_a_twentieth_more_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, mean = list[int](), Credits.mean.fget
    assert mean is not None

    def counted(credits: Credits) -> Proportion:
        looks.append(len(credits))
        return mean(credits)

    monkeypatch.setattr(Credits, "mean", property(counted))
    tally = CheckerTally()
    for number in range(4000):
        tally.add(audited(number, agrees=True))
        for _ in range(3):
            assert tally.above(0.1) is None
    # Each number up to 40, and then at most 5 % more each time: log(100) / log(1.05) = 94.
    assert looks[:40] == [*range(1, 41)]
    assert len(looks) < 140
    assert all(after <= before * 1.05 + 1 for before, after in pairwise(looks))
    assert looks[-1] > 3800


def test_a_limit_that_was_passed_stays_passed() -> None:
    tally, found = CheckerTally(), None
    for number in range(400):
        tally.add(audited(number, agrees=number % 2 == 0))
        before, found = found, tally.above(0.1)
        assert before is None or found is before
    assert found is not None
    assert found.interval[0] > 0.1
    # Every second decision disagrees: Wilson's lower bound of 5 of 10 is 0.24.
    assert found.n <= 10
