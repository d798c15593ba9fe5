"""Ratios to peers: what alternates, what the interval says, and what makes the check fail."""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import Comparison, Limit, Run, Suite, Unavailable

ROOT = Path(__file__).parents[2]


class Speeds:
    """A suite of one comparison whose rates are given, and the order in which they were taken."""

    def __init__(self, own: Sequence[float], peer: Sequence[float]) -> None:
        self.rates = {"own": iter([1.0, *own]), "peer": iter([1.0, *peer])}
        self.taken: list[str] = []
        self.closed = False
        self.suite = Suite(
            names=["toy/one", "toy/absent", "toy/slow"], open=self._open, default=["toy/[oa]*"]
        )

    async def _take(self, side: str) -> Run:
        self.taken.append(side)
        return Run(next(self.rates[side]), {"waited, s": float(len(self.taken))})

    async def _open(
        self, names: Sequence[str], options: argparse.Namespace
    ) -> AsyncIterator[Comparison | Unavailable]:
        try:
            assert "toy/slow" not in names
            if "toy/absent" in names:
                yield Unavailable("toy/absent", "not installed; pip install absent")
            if "toy/one" in names:
                yield Comparison(
                    name="toy/one",
                    peer="peer 1.2",
                    unit="rows/s",
                    measure_own=lambda: self._take("own"),
                    measure_peer=lambda: self._take("peer"),
                    limit=Limit(rate=1000.0, why="a wire"),
                )
        finally:
            self.closed = True


@pytest.fixture(autouse=True)
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of stored ratios, which does not exist yet."""
    monkeypatch.setattr(peers, "STORED", tmp_path / "ratios.json")
    return tmp_path / "ratios.json"


def run(speeds: Speeds, *words: str) -> int:
    return peers.main(speeds.suite, "A toy.", ["--only", "toy/one", *words])


def test_the_two_alternate_and_the_first_pair_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = Speeds(own=[20, 30, 80], peer=[10, 10, 20])
    assert run(speeds, "--pairs", "3", "--json", str(tmp_path / "found.json")) == 0
    assert speeds.taken == ["own", "peer"] * 4
    assert speeds.closed
    (found,) = json.loads((tmp_path / "found.json").read_text())["results"]
    # Ratios of pairs, not the ratio of medians, which would be 30 / 10.
    assert [pair["own"]["rate"] / pair["other"]["rate"] for pair in found["pairs"]] == [2, 3, 4]
    assert found["ratio"] == 3
    assert found["interval"] == [2, 4], "two of three draws may be the same pair"
    assert found["limit"] == {"rate": 1000.0, "why": "a wire"}
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "toy/one" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        *("toy/one", "rows/s", "30", "10", "3.00", "2.00 to 4.00", "3", "", "3%")
    ]
    assert "toy/one: peer peer 1.2\n  limit 1,000 rows/s: a wire\n  waited, s: 5, peer 6" in printed


def test_the_interval_of_many_pairs_is_that_of_their_median() -> None:
    # The exact 95 % interval of a median by order statistics: for n = 99 the 40th to the 60th value.
    # (Conover, Practical Nonparametric Statistics: n / 2 -+ 1.96 * sqrt(n) / 2.)
    n = 99
    ratios = [1 + i / n for i in range(n)]
    comparison = Comparison(
        name="n", peer="p", unit="u", measure_own=None, measure_peer=None, limit=Limit(rate=1, why="")
    )
    found = peers.Result(comparison, [Run(one) for one in ratios], [Run(1.0)] * n, 0.0)
    half = 1.96 * math.sqrt(n) / 2 / n
    assert found.interval == pytest.approx((found.ratio - half, found.ratio + half), abs=0.02)


def test_a_ratio_is_stored_and_found_again(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored.write_text('{"other": {"ratio": 7.0}}')
    assert run(Speeds(own=[4] * 10, peer=[2] * 10), "--store") == 0
    kept = json.loads(stored.read_text())
    assert kept["other"] == {"ratio": 7.0}
    assert (kept["toy/one"]["ratio"], kept["toy/one"]["interval"], kept["toy/one"]["pairs"]) == (
        2,
        [2, 2],
        10,
    )
    assert kept["toy/one"]["peer"] == "peer 1.2"
    capsys.readouterr()
    assert run(Speeds(own=[4] * 10, peer=[2] * 10), "--check") == 0
    assert "│   2.00 │" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("own", "fallen"),
    [
        ([0.9] * 10, True),
        ([1.0] * 10, False),  # half of the stored ratio, and not below it
        ([0.5] * 6 + [1.5] * 4, False),  # the median is below half, and the interval reaches above it
        ([0.5] * 9 + [3.0], True),  # a single run does not matter
    ],
)
def test_the_check_fails_only_if_the_whole_interval_is_below_half(
    own: list[float], fallen: bool, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored.write_text('{"toy/one": {"ratio": 2.0}}')
    assert run(Speeds(own=own, peer=[1.0] * 10), "--check") == int(fallen)
    told = [line for line in capsys.readouterr().err.splitlines() if "below half" in line]
    assert len(told) == fallen
    assert not told or told[0].startswith(f"toy/one: the ratio is at most {own[0]:.2f}, below half of")


def test_what_cannot_be_measured_is_named_and_the_rest_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    speeds = Speeds(own=[1], peer=[1])
    assert peers.main(speeds.suite, None, ["--pairs", "1"]) == 0
    assert "not measured: toy/absent: not installed; pip install absent\n" in capsys.readouterr().err
    assert speeds.taken == ["own", "peer"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("sandbox_latency", ["--only", "sandbox/python/trivial/1", "--seconds", "0.05"]),
        ("generation_throughput", ["--only", "generation/generate", "--rows", "16", "--new", "8"]),
    ],
)
def test_no_stored_ratio_has_fallen_to_half(script: str, words: list[str]) -> None:
    """The check of CI, on the two cheapest ratios, with ten short pairs."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{script}", "--check", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no stored ratio" not in done.stderr
    assert re.search(rf"^{words[1]}: [0-9.]+ over 10 pairs in ", done.stderr, re.MULTILINE)
