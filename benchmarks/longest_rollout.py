"""The share of sampling that waits for the longest rollouts, and what would save it, simulated.

    python -m benchmarks.longest_rollout

Rollouts of a batch begin together and share one engine: each gets its part of the engine's tokens per
second, and never more than one dialogue alone. Lengths are lognormal and cut at the token limit. The table
has the mean seconds of a batch, the share in which less than a tenth of the rollouts still run, and what
two ways around it save:

* oversampling: a quarter more rollouts begin, and the batch is full when enough have ended. Long rollouts
  are left out, which changes what is learned;
* partial rollouts: unfinished rollouts go on in the next batch, so that the engine is always full; also as a
  share of the whole step, training included, with the middle 95 % of the batches.

Speeds of an H100 with a model of 8 B are assumed, as in `benchmarks.scaling`; those of two CPU cores with
SmolLM2-135M are measured (benchmarks/RESULTS.md, "Faster batches").
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, quantiles

from tirjudge.console_text import table

BATCHES = 200


@dataclass(frozen=True, slots=True)
class Engine:
    """The speed of a sampler, and the seconds that training takes per token of a batch."""

    name: str
    rollouts: int
    """Rollouts of a batch on one engine."""
    total: float
    """Tokens per second of all rollouts together."""
    single: float
    """Tokens per second of one rollout alone."""
    trained: float
    """Tokens per second in training."""
    mean: float
    limit: int


ENGINES = (
    Engine("one of 8 H100s, 128 x 8 rollouts", 128, 6030, 123, 6000, 600, 8192),
    Engine("two cores, 16 x 8 rollouts", 128, 330, 40, 210, 100, 192),
)
SPREADS = (0.3, 0.6, 0.9)
"""Standard deviations of the logarithm of a length."""


def lengths(engine: Engine, spread: float, count: int, draw: random.Random) -> list[float]:
    """Return the tokens of so many rollouts."""
    middle = log(engine.mean) - spread**2 / 2
    return [min(engine.limit, exp(draw.gauss(middle, spread))) for _ in range(count)]


def ends(tokens: Sequence[float], engine: Engine) -> list[float]:
    """Return the seconds at which rollouts that begin together end, in rising order."""
    found, now, done = [], 0.0, 0.0
    ordered = sorted(tokens)
    for number, length in enumerate(ordered):
        rate = min(engine.single, engine.total / (len(ordered) - number))
        now += (length - done) / rate
        done = length
        found.append(now)
    return found


def measure(engine: Engine, spread: float, seed: int) -> list[str]:
    """Return a row of the table: medians over batches."""
    draw = random.Random(f"{seed}/{engine.name}/{spread}")
    whole, tail, more, partial, step = [], [], [], [], []
    for _ in range(BATCHES):
        tokens = lengths(engine, spread, engine.rollouts * 5 // 4, draw)
        own = tokens[: engine.rollouts]
        times = ends(own, engine)
        whole.append(times[-1])
        tail.append(1 - times[engine.rollouts * 9 // 10 - 1] / times[-1])
        more.append(1 - ends(tokens, engine)[engine.rollouts - 1] / times[-1])
        partial.append(1 - sum(own) / engine.total / times[-1])
        trained = sum(own) / engine.trained
        step.append((times[-1] - sum(own) / engine.total) / (times[-1] + trained))
    low, *_, high = quantiles(step, n=40)
    shares = (fmean(values) for values in (tail, more, partial))
    return [
        engine.name,
        f"{spread:g}",
        f"{fmean(whole):.1f}",
        *(f"{share:.0%}" for share in shares),
        f"{fmean(step):.0%} [{low:.0%}, {high:.0%}]",
    ]


def main() -> None:
    """Simulate all engines and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    head = ["engine", "spread", "seconds", "last tenth", "oversampled saves", "partial saves", "of a step"]
    rows = [measure(engine, spread, seed) for engine in ENGINES for spread in SPREADS]
    print("\n".join(table([head, *rows], words=2)))


if __name__ == "__main__":
    main()
