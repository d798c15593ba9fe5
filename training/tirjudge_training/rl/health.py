"""Health checks that stop an RL run which no longer learns, with a one-line reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_environments import Reward, StopReason
from tirjudge_training.rl.dynamic_sampling import ScoredRollouts

FAILING = {StopReason.SANDBOX_DOWN: "the sandbox", StopReason.GENERATOR_DOWN: "generation"}
FINITE = {
    "sampler_gap": "the trainer's logprobs are not finite",
    "loss": "a lower learning rate or max_grad_norm may help",
    "grad_norm": "a lower learning rate or max_grad_norm may help",
}
"""Metrics that must be finite, and what to look at if one is not."""
USED = 0.1
"""Calls per response; tool use cannot collapse in a run that never reached this rate."""


class HealthConfig(BaseModel):
    """The thresholds at which an RL stage stops (ours). They may be changed when a run is resumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failures: float = Field(default=0.1, ge=0, le=1)
    """The share of a batch's rollouts that may fail in the sandbox, or in generation, after resampling."""
    patience: int = Field(default=3, gt=0)
    """The number of consecutive batches with more failures after which the run stops."""
    tool_use: float = Field(default=0.1, ge=0, lt=1)
    """Stop if calls per response fall below this share of their highest mean; 0 turns the check off."""
    window: int = Field(default=10, gt=0)
    """The number of batches over which calls are averaged."""
    sampler_gap: float | None = Field(default=None, gt=0)
    """The largest difference between the logprobs of sampler and trainer; None allows any. The run stops
    after `patience` consecutive batches above it."""


class Unhealthy(RuntimeError):
    """The run has stopped learning; the message gives the reason in one line."""


class Health:
    """Checks every batch in order and raises Unhealthy; its state depends on the batches alone."""

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._rows: list[Mapping[str, Any]] = []
        self._most = 0.0  # the highest mean of calls per response over a full window

    def earlier(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the metrics of batches before an interruption, without checking them."""
        for row in rows:
            self._add(row)

    def rollouts(self, step: int, batch: Sequence[ScoredRollouts]) -> None:
        """Check that the rewards of a batch are finite, before it is trained on."""
        for rollouts in batch:
            for score in (score for scores in rollouts.scores for score in scores):
                if isinstance(score, Reward) and not math.isfinite(score.total):
                    raise _unhealthy(
                        step,
                        f"the reward of task {rollouts.formatted.task.id!r} is {score.total}: "
                        f"check the environment {rollouts.formatted.format!r}",
                    )

    def trained(self, row: Mapping[str, Any]) -> None:
        """Check the metrics of a batch after it was trained on."""
        self._add(row)
        # `sampler_gap` comes first: a model with nan weights makes the others nan as well.
        for name, advice in FINITE.items():
            if name in row and not math.isfinite(row[name]):
                raise _unhealthy(row["step"], f"{name} is {row[name]}: {advice}")
        self._failures(row["step"])
        self._gap(row["step"])
        self._tool_use(row["step"])

    def _add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        # Only full windows count: the mean of a few batches is too noisy to be a peak.
        if len(self._rows) >= self._config.window:
            self._most = max(self._most, self._calls())

    def _calls(self) -> float:
        return fmean(row["tools/calls"] for row in self._rows[-self._config.window :])

    def _failures(self, step: int) -> None:
        latest = self._rows[-self._config.patience :]
        for reason, name in FAILING.items():
            # A metrics row names only the stop reasons that occurred.
            shares = [row.get(f"stop/{reason}", 0.0) for row in latest]
            if len(shares) == self._config.patience and min(shares) > self._config.failures:
                raise _unhealthy(
                    step,
                    f"{name} keeps failing: {shares[-1]:.0%} of the rollouts after resampling, and more than "
                    f"{self._config.failures:.0%} in {len(shares)} consecutive batches (rl.health.failures)",
                )

    def _gap(self, step: int) -> None:
        latest, most = self._rows[-self._config.patience :], self._config.sampler_gap
        gaps = [row.get("sampler_gap", 0.0) for row in latest]
        if most is not None and len(gaps) == self._config.patience and min(gaps) > most:
            raise _unhealthy(
                step,
                f"sampler and trainer differ by {gaps[-1]:.2g} in logprobs, and by more than {most:g} in "
                f"{len(gaps)} consecutive batches (rl.health.sampler_gap): use float32 (model.dtype)",
            )

    def _tool_use(self, step: int) -> None:
        # A judge that hardly ever called a program has no tool use that could collapse.
        if len(self._rows) < self._config.window or self._most < USED:
            return
        if self._calls() < self._config.tool_use * self._most:
            raise _unhealthy(
                step,
                f"tool use has collapsed: {self._calls():.2f} calls per response over {self._config.window} "
                f"batches, down from {self._most:.2f} (rl.health.tool_use)",
            )


def _unhealthy(step: int, what: str) -> Unhealthy:
    return Unhealthy(
        f"rl stopped at step {step + 1}: {what}; the same command resumes from the last checkpoint"
    )
