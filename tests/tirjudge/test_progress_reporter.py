"""The progress reporter: its lines, when they come, and what predicts the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tirjudge import progress
from tirjudge.cli.output import say
from tirjudge.progress import ProgressReporter


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the reporter reads: tests move them."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_has_the_count_the_rate_and_the_time_left(clock: list[float]) -> None:
    said: list[str] = []
    reporter = ProgressReporter(said.append, "source", "rows", 1000, detail=lambda: "2 failed")
    for _ in range(60):
        clock[0] += 1
        reporter.count("row")
    # Thirty rows in thirty seconds, then sixty in sixty: 940 rows at one a second are left.
    assert said == [
        "source: 30 of 1,000 rows, 1.00 per second, 2 failed, 16 min left",
        "source: 60 of 1,000 rows, 1.00 per second, 2 failed, 16 min left",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_progress_in_one_line_and_a_log_keeps_every_line(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    reporter = ProgressReporter(lambda line: say(f"rl: {line}"), total=100)
    for _ in range(60):
        clock[0] += 1
        reporter.count("row")
    say("done\x1b[2J")
    said = capsys.readouterr().err
    assert said.endswith("done\\x1b[2J\n")
    assert said.count("\n") == (1 if terminal else 3)
    assert said.count("\r\x1b[Krl: ") == (60 if terminal else 0)


def test_work_of_an_earlier_run_does_not_count_as_speed(clock: list[float]) -> None:
    said: list[str] = []
    reporter = ProgressReporter(said.append, unit="dialogues", total=110, done=100)
    for _ in range(2):
        clock[0] += 30
        reporter.count("dialogue")
    assert said == [
        # One dialogue says how long one takes, but not how many are through at the same time.
        "101 of 110 dialogues, 0.03 per second",
        "102 of 110 dialogues, 0.03 per second, 4 min left",
    ]


def test_rows_side_by_side_give_no_estimate_before_it_can_be_one(clock: list[float]) -> None:
    """Sixteen at a time of 256 take 10 s: each estimate is at most twice the time that is really left."""
    reporter = ProgressReporter(lambda line: None, total=256)
    estimates = 0
    for second in range(1, 161):
        clock[0] += 1
        # The rows of one round end within its last second and the next.
        for _ in range(1 if second % 10 == 0 else 15 if second % 10 == 1 and second > 1 else 0):
            reporter.finished()
        if reporter.left is None:
            assert second < 20
        elif second < 150:
            estimates += 1
            assert reporter.left <= 2 * (161 - second) + 20
    assert estimates == 130


def test_one_row_is_one_row(clock: list[float]) -> None:
    assert ProgressReporter(lambda line: None, total=1).line == "0 of 1 row"


def test_a_stream_without_a_known_end_is_counted_while_it_passes(clock: list[float]) -> None:
    said: list[str] = []
    reporter = ProgressReporter(said.append, unit="rows")

    def rows() -> Iterator[int]:
        for number in range(3):
            clock[0] += 15
            yield number

    assert [reporter.count(row) for row in rows()] == [0, 1, 2]
    assert said == ["2 rows, 0.07 per second"]
