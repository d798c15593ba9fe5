"""The order that each method finds with a noisy judge of known accuracy, on groups whose order is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau

from tirjudge.selection.strengths import Comparison
from tirjudge.selection.tournaments import open_tournament

SPREAD = 1.0
"""Standard deviation of the true qualities of a group."""
_PAIRS = 200_000


@dataclass(frozen=True)
class Arm:
    """A method with a number of comparisons."""

    method: str
    most: int | None
    """Most comparisons of a group; None for the method's own number."""
    repeats: int = 1
    """Questions per comparison, such as 2 for both orders: agreement wins, and disagreement is a tie."""


def arms(size: int) -> list[Arm]:
    """Return the methods with comparable numbers of calls."""
    least, full = size // 2, size * (size - 1) // 2
    cuts = [rounds * least for rounds in (1 + size % 2, 2, 3, 4) if rounds * least < full]
    found = [Arm(name, most) for name in ("round-robin", "swiss") for most in dict.fromkeys(cuts)]
    found += [Arm(name, None, repeats) for name in ("knockout", "pivot") for repeats in (1, 2)]
    return [*found, Arm("round-robin", None), Arm("listwise", None)]


def steepness(accuracy: float, seed: int = 0) -> float:
    """Return k such that a judge right with probability 1 / (1 + exp(-k |difference|)) has this accuracy.

    The accuracy is over pairs with independent normal qualities, to about 0.001.
    """
    gaps = np.abs(np.random.default_rng(seed).normal(0, SPREAD * math.sqrt(2), _PAIRS))
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        if (1 / (1 + np.exp(-middle * gaps))).mean() < accuracy:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def play(arm: Arm, size: int, k: float, seed: int) -> tuple[float, float, int]:
    """Return Kendall's tau-b of rewards and qualities, the credit of the best, and the calls.

    The credit is 1 if the best member alone has the highest reward, and 1 / m if m members share it.
    """
    rng = np.random.default_rng(seed)
    quality = rng.normal(0, SPREAD, size)
    if arm.method == "listwise":
        return _scored(_listwise(quality, k, rng), quality, 1)
    method, played = open_tournament(arm.method), list[Comparison]()
    while pairs := method.following(size, arm.most, seed, played):
        for first, second in pairs:
            # The logistic function, in a form that does not overflow.
            chance = (1 + math.tanh(k * (quality[first] - quality[second]) / 2)) / 2
            share = float(np.mean([rng.random() < chance for _ in range(arm.repeats)]))
            played.append(Comparison((first, second), (share, 1 - share)))
    return _scored(method.rewards(size, played), quality, len(played) * arm.repeats)


def _listwise(quality: np.ndarray, k: float, rng: np.random.Generator) -> list[float]:
    """Return 1 for one member, drawn as Plackett and Luce do, which for two members is the pairs' judge."""
    noisy = k * quality + rng.gumbel(size=len(quality))
    return [float(member == noisy.argmax()) for member in range(len(quality))]


def _scored(rewards: Sequence[float | None], quality: np.ndarray, calls: int) -> tuple[float, float, int]:
    values = np.array(rewards, dtype=float)
    found = kendalltau(values, quality).statistic
    top = int(quality.argmax())
    highest = values == values.max()
    return (0.0 if math.isnan(found) else float(found)), float(highest[top] / highest.sum()), calls


@dataclass(frozen=True)
class Result:
    """An arm's mean over groups."""

    arm: Arm
    size: int
    accuracy: float
    calls: int
    tau: float
    interval: float
    """Half of the 95 % interval of `tau`, by the normal distribution."""
    best_on_top: float

    def line(self) -> str:
        name = self.arm.method + (", twice" if self.arm.repeats == 2 else "")
        return (
            f"| {self.size} | {self.accuracy:.0%} | {name} | {self.calls} | {self.tau:.3f} ± "
            f"{self.interval:.3f} | {self.best_on_top:.1%} |"
        )


HEADER = (
    "| group | judge's accuracy | method | calls | Kendall's tau-b | best on top |\n|--:|--:|---|--:|--:|--:|"
)


def simulate(
    sizes: Sequence[int], accuracies: Sequence[float], groups: int, seed: int, say: Callable[[str], None]
) -> list[Result]:
    """Play every arm on the same `groups` groups, and print a line for each."""
    say(HEADER)
    results = []
    for size in sizes:
        for accuracy in accuracies:
            k = steepness(accuracy)
            for arm in sorted(arms(size), key=lambda arm: play(arm, size, k, 0)[2]):
                played = [play(arm, size, k, seed * groups + number) for number in range(groups)]
                taus = np.array([tau for tau, _, _ in played])
                results.append(
                    Result(
                        arm,
                        size,
                        accuracy,
                        played[0][2],
                        float(taus.mean()),
                        float(1.96 * taus.std(ddof=1) / math.sqrt(groups)),
                        float(np.mean([top for _, top, _ in played])),
                    )
                )
                say(results[-1].line())
    return results
