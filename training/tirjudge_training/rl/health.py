"""Health checks that stop an RL run which no longer learns, with a one-line reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from tirjudge_environments import Reward, StopReason
from tirjudge_environments.types import FrozenModel
from tirjudge_training.rl.dynamic_sampling import ScoredRollouts

FAILING = {StopReason.SANDBOX_DOWN: "the sandbox", StopReason.GENERATOR_DOWN: "generation"}
LOWER = "begin again with a lower rl.learning_rate or rl.max_grad_norm, and another --output"
FINITE = {"sampler_gap": "the trainer's logprobs are not finite", "loss": LOWER, "grad_norm": LOWER}
"""Metrics that must be finite, and what to look at if one is not."""
FIRST_SHOWN = "verdicts/first_shown"
"""The metric with the share of the verdicts on pairs that name the response shown first."""


class HealthConfig(FrozenModel):
    """The thresholds at which an RL stage stops (ours). They may be changed when a run is resumed."""

    failures: float = Field(default=0.1, ge=0, le=1)
    """The share of a batch's rollouts that may fail in the sandbox, or in generation, after resampling."""
    patience: int = Field(default=3, gt=0)
    """The number of consecutive batches with more failures after which the run stops."""
    tool_use: float = Field(default=0.3, ge=0, lt=1)
    """Stop if calls per response are below this share of the first batch's in `patience` consecutive batches;
    0 turns the check off."""
    errors: float = Field(default=0.4, ge=0, le=1)
    """Stop if more than this share of the programs end with an error in `patience` consecutive batches, and
    more than in the first batch; 1 turns the check off."""
    position: float = Field(default=0.8, ge=0.5, le=1)
    """Stop if more than this share of the verdicts on pairs name the same place, the first or the second, in
    `patience` consecutive batches, and more than in the first batch; 1 turns the check off."""
    kl: float = Field(default=1.0, gt=0)
    """Stop if the KL divergence from the start of the stage, in nats per token (`kl_start` of the metrics),
    is larger in `patience` consecutive batches."""
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

    def earlier(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the metrics of batches before an interruption, without checking them."""
        self._rows += rows

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
        self._rows.append(row)
        # `sampler_gap` comes first: a model with nan weights makes the others nan as well.
        for name, advice in FINITE.items():
            if name in row and not math.isfinite(row[name]):
                raise _unhealthy(row["step"], f"{name} is {row[name]}: {advice}")
        self._failures(row["step"])
        self._gap(row["step"])
        self._programs(row["step"])
        self._position(row["step"])
        self._divergence(row["step"])

    def _latest(self, name: str, missing: float = 0.0) -> list[float]:
        """Return a metric of the latest `patience` batches; empty before there are so many."""
        patience = self._config.patience
        # A batch names only the stop reasons that occurred in it.
        return (
            [row.get(name, missing) for row in self._rows[-patience:]] if len(self._rows) >= patience else []
        )

    def _failures(self, step: int) -> None:
        for reason, name in FAILING.items():
            shares = self._latest(f"stop/{reason}")
            if shares and min(shares) > self._config.failures:
                raise _unhealthy(
                    step,
                    f"{name} keeps failing: {shares[-1]:.0%} of the rollouts after resampling, and more than "
                    f"{self._config.failures:.0%} in {len(shares)} consecutive batches (rl.health.failures)",
                )

    def _gap(self, step: int) -> None:
        gaps, most = self._latest("sampler_gap"), self._config.sampler_gap
        if most is not None and gaps and min(gaps) > most:
            raise _unhealthy(
                step,
                f"sampler and trainer differ by {gaps[-1]:.2g} in logprobs, and by more than {most:g} in "
                f"{len(gaps)} consecutive batches (rl.health.sampler_gap): begin again with "
                "model.dtype=float32 and another --output",
            )

    def _programs(self, step: int) -> None:
        calls, first = self._latest("tools/calls"), self._rows[0]
        if calls and max(calls) < self._config.tool_use * first["tools/calls"]:
            raise _unhealthy(
                step,
                f"tool use has collapsed: {calls[-1]:.2f} calls per response, down from "
                f"{first['tools/calls']:.2f} in the first batch (rl.health.tool_use)",
            )
        errors = self._latest("tools/error_rate")
        if errors and min(errors) > max(self._config.errors, first["tools/error_rate"]):
            raise _unhealthy(
                step,
                f"{errors[-1]:.0%} of the programs end with an error, up from "
                f"{first['tools/error_rate']:.0%} in the first batch (rl.health.errors): begin "
                "again with a lower rl.learning_rate and another --output",
            )

    def _position(self, step: int) -> None:
        # A batch with few verdicts on pairs does not have the metric.
        shares, began = self._latest(FIRST_SHOWN, missing=0.5), self._rows[0].get(FIRST_SHOWN, 0.5)
        places = ("first", shares, began), ("second", [1 - share for share in shares], 1 - began)
        for place, named, before in places:
            if named and min(named) > max(self._config.position, before):
                raise _unhealthy(
                    step,
                    f"{named[-1]:.0%} of the verdicts on pairs name the response shown {place}, up from "
                    f"{before:.0%} in the first batch (rl.health.position): begin again with another "
                    '--output and order = "both" among the options of the judge of pairs',
                )

    def _divergence(self, step: int) -> None:
        kl = self._latest("kl_start")
        if kl and min(kl) > self._config.kl:
            raise _unhealthy(
                step,
                f"the KL divergence from the start is {kl[-1]:.2g} nats per token, and more than "
                f"{self._config.kl:g} in {len(kl)} consecutive batches (rl.health.kl): begin again "
                "with a lower rl.learning_rate or a larger rl.beta, and another --output",
            )


def _unhealthy(step: int, what: str) -> Unhealthy:
    return Unhealthy(
        f"rl stopped at step {step + 1}: {what}; the same command resumes from the last checkpoint"
    )
