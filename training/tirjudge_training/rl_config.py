"""What an RL stage can be told: batches, the loss, and the limits of a trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from tirjudge_training.advantages import Filter, Sigma
from tirjudge_training.engine import RolloutConfig
from tirjudge_training.health import HealthConfig
from tirjudge_training.losses import LOSSES, open_loss
from tirjudge_training.reporters import Reporter


def _known_loss(name: str) -> str:
    LOSSES.entry(name)
    return name


class RlConfig(RolloutConfig):
    """The RL stage. Defaults are TIR-Judge's (§5.1) where the paper has a number; `ours` marks the rest."""

    steps: int = Field(default=0, ge=0)
    """Generation batches (ours); 0: as many as `epochs` takes."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training tasks, instead of `steps`: TIR-Judge 2, JudgeLRM 1, the rationale judge 2."""
    groups: int = Field(default=128, gt=0)
    """Slots of a generation batch: one per view of a task (ours: the paper does not print it)."""
    samples: int = Field(default=8, gt=1)
    """Rollouts per group, the paper's G."""
    optimizer_steps: int = Field(default=1, gt=0)
    """Per generation batch (ours); with 1 the ratio is always 1 and nothing is ever clipped."""
    micro_batch: int = Field(default=4, gt=0)
    """Rows of one forward pass on one device, at most."""
    length_buckets: int = Field(default=1, gt=0)
    """Parts of a micro-batch, by length, each padded to its own longest row (ours)."""
    learning_rate: float = Field(default=1e-6, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises to its constant value (ours)."""
    decay: bool = False
    """Let the learning rate fall linearly over the stage instead of staying constant (ours)."""
    final_learning_rate: float = Field(default=0.0, ge=0)
    """Where the falling learning rate ends; J1-70B's is 3e-7."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    loss: Annotated[str, AfterValidator(_known_loss)] = "dapo"
    """A loss by name, see `tirjudge_training.losses`: `dapo`, `per_response`, `sequence`, or one that another
    package registers in the entry-point group `tirjudge.losses`."""
    loss_options: Mapping[str, Any] | None = None
    """Options of the loss, if it has any; the three above have none."""
    sigma: Sigma = "sample"
    """Of a group's rewards; JudgeLRM's is `population` (Eq. 6)."""
    eta: float = Field(default=0.0, ge=0)
    """Added to sigma; JudgeLRM's is 1e-6 (Eq. 7)."""
    epsilon: float = Field(default=0.2, gt=0)
    """Clip of the ratio from below; the rationale judge's is 2e-4 on both sides."""
    epsilon_high: float = Field(default=0.3, gt=0)
    beta: float = Field(default=0.01, ge=0)
    """Weight of the KL divergence to the model that the stage starts from; 0 loads no reference."""
    importance_cap: float | None = Field(default=None, gt=0)
    """Largest weight of a token for being likelier to the trainer than to the engine that drew it (truncated
    importance sampling, for vLLM; 2.0 is common); None weighs all tokens alike (ours)."""
    entropy_bonus: float = Field(default=0.0, ge=0)
    """Weight of the mean entropy of a batch's tokens in the objective (ours)."""
    filter: Filter = "correctness"
    replacement_rounds: int = Field(default=2, ge=0)
    """Rounds of replacement for groups that teach nothing (ours)."""
    resamples: int = Field(default=2, ge=0)
    """How often an episode is drawn again whose sandbox or generator failed (ours)."""
    report_to: tuple[Reporter, ...] = ()
    """Where the numbers of `metrics.jsonl` go besides; may be changed when a stopped run goes on (ours)."""
    health: HealthConfig = HealthConfig()
    checkpoint_every: int = Field(default=10, gt=0)
    """Generation batches between checkpoints (ours)."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """The last ones, which stay: a run goes on from the last, and a cycle chooses among them (ours)."""

    @model_validator(mode="after")
    def _fits_together(self) -> RlConfig:
        if self.temperature == 0:
            raise ValueError("temperature = 0 draws the same rollout every time: nothing can be compared")
        open_loss(self.loss, self.loss_options)
        self.shares(1)
        return self

    def shares(self, processes: int) -> tuple[int, int]:
        """Rows of a forward pass, and forward passes of a generation batch, of each of `processes`.

        Raises ValueError if the batch cannot be shared out.
        """
        if self.final_learning_rate and not (self.decay and self.final_learning_rate < self.learning_rate):
            raise ValueError("final_learning_rate is what a larger learning_rate falls to: set decay = true")
        if bool(self.steps) == (self.epochs is not None):
            raise ValueError("say either steps or epochs")
        rows = self.groups * self.samples
        micro_batch = min(self.micro_batch, max(1, rows // (processes * self.optimizer_steps)))
        if rows % (micro_batch * self.optimizer_steps * processes):
            raise ValueError(
                f"groups * samples = {rows} is no multiple of micro_batch * optimizer_steps * processes "
                f"= {micro_batch} * {self.optimizer_steps} * {processes}"
            )
        return micro_batch, rows // (micro_batch * processes)
