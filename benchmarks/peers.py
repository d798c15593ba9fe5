"""Speed ratios to the alternatives that a user would choose, measured in alternating pairs.

The scripts of `make bench` share this module. Each lists its comparisons; a comparison runs this package and
a peer in turns (A B A B ...), so that other load on the machine affects both alike, and takes the ratio of
each pair. It reports the median ratio with a bootstrap interval over the pairs, and the physical limit.

All these scripts take the same options:

    python -m benchmarks.NAME                    # a table
    python -m benchmarks.NAME --only 'PATTERN'   # some of the comparisons
    python -m benchmarks.NAME --json FILE        # every run, and the machine
    python -m benchmarks.NAME --check            # exit code 1 if a ratio has fallen, see below
    python -m benchmarks.NAME --store            # write the ratios to `benchmarks/ratios.json`

`--check` fails only if the interval of a ratio, over at least ten pairs, lies below half of the stored ratio.
A machine with other cores has other ratios, so anything closer would fail without cause.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

STORED = Path(__file__).with_name("ratios.json")
CHECKED_PAIRS = 10
"""The fewest pairs that `--check` decides on."""
TOLERATED = 0.5
"""The share of the stored ratio below which the whole interval must lie for `--check` to fail."""
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run."""

    rate: float
    """Units of work per second; more is better."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Further numbers of the run, with their units in their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The rate that no implementation can exceed on this machine."""

    rate: float
    why: str


Work = Callable[[], Awaitable[Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A way to do some work in this package, and a peer's way to do the same work."""

    name: str
    peer: str
    """The peer with its version."""
    unit: str
    """The unit of the rates, for example `rows/s`."""
    measure_own: Work
    measure_peer: Work
    limit: Limit


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A comparison that cannot be measured on this machine, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The comparisons of one script."""

    names: Sequence[str]
    open: Callable[[Sequence[str], argparse.Namespace], AsyncIterator[Comparison | Unavailable]]
    """Yields the comparisons with the given names. Each is measured before the next is requested."""
    default: Sequence[str] = ("*",)
    """Patterns of the comparisons that are measured without `--only`."""
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    """Adds the options of this suite."""


@dataclass(frozen=True, slots=True)
class Result:
    """The measured pairs of a comparison."""

    comparison: Comparison
    own: Sequence[Run]
    peer: Sequence[Run]
    load: float
    """Load average over one minute at the end of the measurement."""

    @property
    def ratios(self) -> list[float]:
        return [own.rate / peer.rate for own, peer in zip(self.own, self.peer, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the median ratio: a percentile bootstrap over the pairs, seed 0."""
        ratios = np.array(self.ratios)
        draws = np.random.default_rng(0).integers(len(ratios), size=(RESAMPLES, len(ratios)))
        low, high = np.percentile(np.median(ratios[draws], axis=1), [2.5, 97.5])
        return float(low), float(high)

    def median(self, runs: Sequence[Run]) -> dict[str, float]:
        """Return the medians of the rate and of the other numbers of some runs."""
        rows = [{"rate": run.rate, **run.others} for run in runs]
        return {name: statistics.median(row[name] for row in rows) for name in rows[0]}

    def as_json(self) -> dict[str, Any]:
        compared = self.comparison
        return {
            "name": compared.name,
            "peer": compared.peer,
            "unit": compared.unit,
            "ratio": self.ratio,
            "interval": self.interval,
            "limit": {"rate": compared.limit.rate, "why": compared.limit.why},
            "own": self.median(self.own),
            "other": self.median(self.peer),
            "pairs": [
                {"own": {"rate": own.rate, **own.others}, "other": {"rate": peer.rate, **peer.others}}
                for own, peer in zip(self.own, self.peer, strict=True)
            ],
            "load": self.load,
        }


async def measure(comparison: Comparison, pairs: int) -> Result:
    """Measure a comparison in alternating pairs, after one pair that is not counted."""
    own, peer = [], []
    for number in range(pairs + 1):
        runs = await comparison.measure_own(), await comparison.measure_peer()
        if number:  # the first loads modules and fills caches
            own.append(runs[0])
            peer.append(runs[1])
    return Result(comparison, own, peer, os.getloadavg()[0])


def has_fallen(result: Result, stored: float) -> bool:
    """Return True if the whole interval lies below half of the stored ratio."""
    return result.interval[1] < TOLERATED * stored


def stored_ratios() -> dict[str, dict[str, Any]]:
    """Return the stored ratios by the names of their comparisons; empty before the first `--store`."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}


def store(results: Sequence[Result]) -> None:
    """Write the ratios to the file of stored ratios, in place of those with the same names."""
    date = datetime.now(UTC).date().isoformat()
    added = {
        result.comparison.name: {
            "ratio": round(result.ratio, 3),
            "interval": [round(bound, 3) for bound in result.interval],
            "pairs": len(result.own),
            "peer": result.comparison.peer,
            "load": round(result.load, 1),
            "cpus": cpus(),
            "date": date,
        }
        for result in results
    }
    text = json.dumps(dict(sorted({**stored_ratios(), **added}.items())), indent=2)
    STORED.write_text(text + "\n", encoding="utf-8")


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def table(results: Sequence[Result]) -> Table:
    """Return the results as a table, one row per comparison."""
    known = stored_ratios()
    shown = Table(title=f"{cpus()} CPUs, load {os.getloadavg()[0]:.1f}", title_justify="left")
    for column in ("comparison", "unit", "own", "peer", "ratio", "95 %", "n", "stored", "of the limit"):
        shown.add_column(column, justify="left" if column in ("comparison", "unit") else "right")
    for result in results:
        compared, (low, high) = result.comparison, result.interval
        own, peer = result.median(result.own)["rate"], result.median(result.peer)["rate"]
        shown.add_row(
            compared.name,
            compared.unit,
            significant(own),
            significant(peer),
            f"{result.ratio:.2f}",
            f"{low:.2f} to {high:.2f}",
            str(len(result.own)),
            f"{known[compared.name]['ratio']:.2f}" if compared.name in known else "",
            f"{own / compared.limit.rate:.0%}",
        )
    return shown


def details(result: Result) -> str:
    """Return the peer, the limit and the further medians of a result, as lines."""
    compared = result.comparison
    lines = [
        f"{compared.name}: peer {compared.peer}",
        f"  limit {significant(compared.limit.rate)} {compared.unit}: {compared.limit.why}",
    ]
    own, peer = result.median(result.own), result.median(result.peer)
    for name in dict.fromkeys([*own, *peer]):
        values = [
            f"{who}{significant(found[name])}" for who, found in (("", own), ("peer ", peer)) if name in found
        ]
        if name != "rate":
            lines.append(f"  {name}: {', '.join(values)}")
    return "\n".join(lines)


def significant(value: float) -> str:
    """Format a number with three significant digits, or as a whole number from 100."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


async def _measured(suite: Suite, names: Sequence[str], options: argparse.Namespace) -> list[Result]:
    results = []
    async with aclosing(suite.open(names, options)) as opened:  # type: ignore[type-var]
        async for found in opened:
            if isinstance(found, Unavailable):
                print(f"not measured: {found.name}: {found.reason}", file=sys.stderr)
                continue
            started = time.monotonic()
            result = await measure(found, options.pairs)
            results.append(result)
            line = f"{found.name}: {result.ratio:.2f} over {options.pairs} pairs"
            print(f"{line} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return results


def main(suite: Suite, description: str | None, arguments: Sequence[str] | None = None) -> int:
    """Measure a suite as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="PATTERN", help="comparisons by name: 'rollouts/trl/*'")
    parser.add_argument("--pairs", type=int, default=10, help="alternating pairs of runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to a file")
    parser.add_argument(
        "--check", action="store_true", help="exit code 1 if a ratio is below half of the stored one"
    )
    parser.add_argument("--store", action="store_true", help=f"write the ratios to {STORED.name}")
    suite.options(parser)
    options = parser.parse_args(arguments)
    if options.pairs < (CHECKED_PAIRS if options.check else 1):
        parser.error(f"--pairs {options.pairs} is too few; --check needs {CHECKED_PAIRS}")
    patterns = options.only or suite.default
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in suite.names):
            parser.error(f"no comparison is named {pattern!r}; there are {', '.join(suite.names)}")
    names = [name for name in suite.names if any(fnmatchcase(name, one) for one in patterns)]
    results = asyncio.run(_measured(suite, names, options))
    if not results:
        return 0
    # Wide enough for a table that is read from a file.
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(results))
    for result in results:
        console.print(details(result), highlight=False, markup=False)
    if options.json is not None:
        machine = {"cpus": cpus(), "machine": platform.machine(), "python": platform.python_version()}
        written = {"machine": machine, "results": [result.as_json() for result in results]}
        options.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    fallen = _report_fallen(results) if options.check else False
    if options.store:
        store(results)
    return int(fallen)


def _report_fallen(results: Sequence[Result]) -> bool:
    """Print a line for every ratio that has fallen or has no stored value; return True if one has fallen."""
    known, fallen = stored_ratios(), False
    for result in results:
        name, high = result.comparison.name, result.interval[1]
        if name not in known:
            print(f"{name}: no stored ratio; --store writes one", file=sys.stderr)
        elif has_fallen(result, known[name]["ratio"]):
            fallen = True
            print(
                f"{name}: the ratio is at most {high:.2f}, below half of the stored "
                f"{known[name]['ratio']:.2f}: the code has become slower, or the peer faster",
                file=sys.stderr,
            )
    return fallen
