"""Whether an RL run is still worth its time: what stops it, and the one line that it stops with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_environments import Reward, StopReason
from tirjudge_training.grouping import Roll

FAILING = {StopReason.SANDBOX_DOWN: "the sandbox", StopReason.GENERATOR_DOWN: "generation"}
FINITE = {
    "sampler_gap": "the trainer's logprobs are no numbers",
    "loss": "a lower learning rate or max_grad_norm may help",
    "grad_norm": "a lower learning rate or max_grad_norm may help",
}
"""Numbers without which a batch has taught nothing, and what to look at."""
USED = 0.1
"""Calls a response: a run that never made as many has no tool use that could collapse."""


class HealthConfig(BaseModel):
    """When an RL stage stops (ours). These keys may be changed when a stopped run goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failures: float = Field(default=0.1, ge=0, le=1)
    """Share of a batch's rollouts that the sandbox, or generation, may fail even when drawn again."""
    patience: int = Field(default=3, gt=0)
    """Batches in a row with more failures than that, after which the run stops."""
    tool_use: float = Field(default=0.1, ge=0, lt=1)
    """Tool use has collapsed where calls a response fall under this share of what they were; 0 is off."""
    window: int = Field(default=10, gt=0)
    """Batches that calls are averaged over."""


class Unhealthy(RuntimeError):
    """The run should stop; the text is one line and says why."""


class Health:
    """Told of every batch in order. It raises Unhealthy, and is a function of what it was told."""

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._rows: list[Mapping[str, Any]] = []
        self._most = 0.0

    def earlier(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The metrics of the batches before an interruption; nothing is raised for them."""
        for row in rows:
            self._add(row)

    def rollouts(self, step: int, rolls: Sequence[Roll]) -> None:
        """Before a batch is trained on: are its rewards numbers?"""
        for roll in rolls:
            for score in (score for scores in roll.scores for score in scores):
                if isinstance(score, Reward) and not math.isfinite(score.total):
                    raise _unhealthy(
                        step,
                        f"the reward of task {roll.draw.task.id!r} is {score.total}: "
                        f"look at the environment {roll.draw.format!r}",
                    )

    def trained(self, row: Mapping[str, Any]) -> None:
        """After a batch was trained on, with its row of metrics."""
        self._add(row)
        for name, advice in FINITE.items():
            if name in row and not math.isfinite(row[name]):
                raise _unhealthy(row["step"], f"{name} is {row[name]}: {advice}")
        self._failures(row["step"])
        self._tool_use(row["step"])

    def _add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._config.window:
            self._most = max(self._most, self._calls())

    def _calls(self) -> float:
        return fmean(row["tools/calls"] for row in self._rows[-self._config.window :])

    def _failures(self, step: int) -> None:
        latest = self._rows[-self._config.patience :]
        for reason, name in FAILING.items():
            shares = [row.get(f"stop/{reason}", 0.0) for row in latest]
            if len(shares) == self._config.patience and min(shares) > self._config.failures:
                raise _unhealthy(
                    step,
                    f"{name} keeps failing: {shares[-1]:.0%} of the rollouts, drawn again too, and more than "
                    f"{self._config.failures:.0%} in {len(shares)} batches in a row (rl.health.failures)",
                )

    def _tool_use(self, step: int) -> None:
        if len(self._rows) < self._config.window or self._most < USED:
            return
        if self._calls() < self._config.tool_use * self._most:
            raise _unhealthy(
                step,
                f"tool use has collapsed: {self._calls():.2f} calls a response over {self._config.window} "
                f"batches, where it has been {self._most:.2f} (rl.health.tool_use)",
            )


def _unhealthy(step: int, what: str) -> Unhealthy:
    return Unhealthy(
        f"rl stopped at step {step + 1}: {what}; the same command goes on from the last checkpoint"
    )
