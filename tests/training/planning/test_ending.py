"""The expected end of a run: the plan's proportions, at the speed that was measured."""

from __future__ import annotations

from tirjudge_training.planning.ending import ExpectedEnd


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def ending(clock: Clock, **planned: float) -> ExpectedEnd:
    # 2026-01-01 00:00 UTC
    return ExpectedEnd(planned, elapsed=clock, now=lambda: 1767225600 + clock.seconds)


def test_the_rest_is_the_plan_at_the_measured_speed() -> None:
    clock = Clock()
    end = ending(clock, warmup=60, rl=600, heldout=120)
    assert end.begins("warmup") == "stage 1 of 3"
    clock.seconds = 180
    end.ends("warmup", timed=True)
    # Three times the planned minute: 720 planned seconds take 2160, and it is 00:03 now.
    assert end.begins("rl") == ("stage 2 of 3; the run is expected to end in 36 min, at 2026-01-01 00:39 UTC")
    clock.seconds = 180 + 1020
    end.ends("rl", timed=True)
    # 1200 seconds for 660 planned ones: the last 120 take 218.
    assert (
        end.begins("heldout") == "stage 3 of 3; the run is expected to end in 4 min, at 2026-01-01 00:23 UTC"
    )


def test_stages_that_were_done_before_or_resumed_say_nothing_about_the_speed() -> None:
    clock = Clock()
    end = ending(clock, warmup=60, rl=600, heldout=120)
    end.ends("warmup", timed=False)
    assert end.begins("rl") == "stage 2 of 3"
    clock.seconds = 1
    end.ends("rl", timed=False)
    assert end.begins("heldout") == "stage 3 of 3"


def test_without_a_plan_only_the_stage_is_named() -> None:
    clock = Clock()
    end = ending(clock, warmup=0, rl=0)
    end.begins("warmup")
    clock.seconds = 60
    end.ends("warmup", timed=True)
    assert end.begins("rl") == "stage 2 of 2"
