"""Proportions and their intervals against published values."""

import math

import pytest

from tirjudge.statistics.proportions import Proportion, wilson_interval


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, Table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_interval_equals_newcombes_table(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


def test_without_trials_there_is_no_rate_and_the_interval_is_everything() -> None:
    empty = Proportion(0, 0)
    assert math.isnan(empty.rate)
    assert empty.interval == (0.0, 1.0)
    assert str(empty) == "n = 0"


def test_a_proportion_reads_as_rate_interval_and_n() -> None:
    assert str(Proportion(81, 263)) == "30.8% [25.5%, 36.6%], n = 263"
    assert Proportion(7.5, 10).rate == 0.75


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="3 successes of 2"):
        wilson_interval(3, 2)
