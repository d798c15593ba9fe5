"""The configuration of an RL stage: batches, loss, schedule, limits of a trajectory, and reporters."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tirjudge.storage.run_settings import MOVABLE, RISES
from tirjudge_environments.types import Later
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.advantages import Filter, Sigma
from tirjudge_training.rl.health import HealthConfig
from tirjudge_training.rl.losses import LOSSES
from tirjudge_training.rl.overlong import OverlongConfig
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.rl.screening import ScreenConfig

Reporter = Literal["tensorboard", "wandb", "trackio"]
"""The name of the package, which is also the name of the extra that installs it."""


class RlConfig(RolloutConfig):
    """The RL stage. Defaults are TIR-Judge's (§5.1) if the paper gives a number; `ours` marks the others."""

    trainer: Annotated[Literal["trl", "verl"], MOVABLE] = "trl"
    """The trainer of the stage: TRL in the processes of `tirjudge train`, or verl on a Ray cluster, which
    `tirjudge launch verl` starts; may be changed when a run is resumed (ours)."""
    steps: Annotated[int, RISES] = Field(default=0, ge=0)
    """Generation batches (ours); 0 means as many as `epochs` takes. It may rise when a run is resumed."""
    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Passes over the training tasks, instead of `steps`: TIR-Judge 2, JudgeLRM 1, the rationale judge 2.
    Replacements are drawn from the same passes, so that the stage may end before all batches are made."""
    rows: int | None = Field(default=None, gt=0)
    """Training rows, replacements included, after which the stage ends even before `steps`; set from `epochs`
    (ours)."""
    groups: int = Field(default=128, gt=0)
    """Groups of a generation batch, one per view of a task (ours: TIR prints the mini-batch, 128)."""
    samples: int = Field(default=8, gt=1)
    """Rollouts per group, the paper's G."""
    optimizer_steps: int = Field(default=1, gt=0)
    """Optimizer steps per generation batch (ours); with 1 the ratio is always 1 and nothing is clipped."""
    micro_batch: int = Field(default=4, gt=0)
    """The most rows of one forward pass on one device."""
    token_budget: int | None = Field(default=None, gt=0)
    """The most tokens of one forward pass on one device, instead of `micro_batch`: rows are packed into one
    sequence without padding. A longer row gets a pass of its own. None pads `micro_batch` rows (ours)."""
    length_buckets: int = Field(default=1, gt=0)
    """Parts into which a micro-batch is split by length, each padded to its own longest row (ours)."""
    learning_rate: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps with a smaller learning rate, which rises linearly to `learning_rate` in the step after
    them (ours). Adam's first steps are of full size whatever the gradient is, so that without a warm-up they
    are mostly noise."""
    decay: bool = False
    """Decrease the learning rate linearly over the stage instead of keeping it constant (ours)."""
    final_learning_rate: float = Field(default=0.0, ge=0)
    """The learning rate at the end of the decay; J1-70B's is 3e-7."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    loss: Annotated[str, AfterValidator(LOSSES.known)] = "dapo"
    """A loss by name, see `tirjudge_training.rl.losses`: `dapo`, `per_response`, `sequence`, or a loss that
    another package registers in the entry-point group `tirjudge.losses`."""
    sigma: Sigma = "sample"
    """The standard deviation of a group's rewards; JudgeLRM uses `population` (Eq. 6), Dr. GRPO `none`."""
    eta: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Added to the standard deviation; JudgeLRM uses 1e-6 (Eq. 7)."""
    epsilon: float = Field(default=0.2, gt=0)
    """The lower clip of the ratio; the rationale judge uses 2e-4 on both sides."""
    epsilon_high: float = Field(default=0.3, gt=0)
    """The upper clip of the ratio."""
    beta: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """Weight of the KL divergence from the stage's initial model; 0 loads no reference model."""
    importance_cap: float | None = Field(default=None, gt=0)
    """The cap of a token's importance weight, its trainer probability over its sampler probability (truncated
    importance sampling, for vLLM; 2.0 is common); None weighs all tokens equally (ours)."""
    entropy_bonus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the mean token entropy in the objective (ours)."""
    filter: Filter = "correctness"
    """The quantity that must differ within a group for dynamic sampling to keep it."""
    replacement_rounds: int = Field(default=2, ge=0)
    """The most rounds in which groups without a learning signal are replaced (ours)."""
    off_policy: bool = False
    """Sample each batch while the one before is trained, with the weights from before that step. Needs
    `importance_cap`; with the transformers generator, a second copy of the model samples (ours)."""
    offload_moments: Annotated[bool, MOVABLE] = False
    """Keep Adam's moments in host memory while a batch is sampled, which frees 8 bytes per trained parameter
    for the engine; may be changed when a run is resumed (ours)."""
    rollouts_at_once: Annotated[int, MOVABLE] = Field(default=256, gt=0)
    """The most rollouts that a process begins together; when fewer run, it takes the next task from a queue
    that all processes share. It may be changed when a run is resumed (ours)."""
    screen: ScreenConfig | None = None
    """A pass before RL that leaves out rows; None trains on all rows."""
    resamples: int = Field(default=2, ge=0)
    """The most times that an episode is sampled again after its sandbox or generator failed (ours)."""
    report_to: Annotated[tuple[Reporter, ...], MOVABLE] = ()
    """Further destinations of the metrics in `metrics.jsonl`; may be changed when a run is resumed (ours)."""
    overlong: Annotated[OverlongConfig, Later(OverlongConfig())] = OverlongConfig()
    health: Annotated[HealthConfig, MOVABLE] = HealthConfig()
    checkpoint_every: int = Field(default=10, gt=0)
    """Generation batches between two checkpoints (ours)."""
    keep_checkpoints: int = Field(default=2, gt=0)
    """The number of latest checkpoints to keep; a run resumes from the last, a cycle selects among them
    (ours)."""

    @model_validator(mode="after")
    def _fits_together(self) -> RlConfig:
        if self.temperature == 0:
            raise ValueError(
                "temperature = 0 gives identical rollouts, so that all advantages are 0: set it above 0"
            )
        if self.truncation and self.importance_cap is None:
            raise ValueError(
                f"{', '.join(self.truncation)} samples from another distribution than the trained one: set "
                "importance_cap, which weights the samples (2.0 is common)"
            )
        if self.screen is not None and self.epochs is not None:
            raise ValueError(
                "rl.screen leaves out rows, so that rl.epochs has no length: set rl.steps instead"
            )
        if self.overlong.punish and self.overlong.cache > self.max_tokens:
            raise ValueError(
                f"overlong.cache = {self.overlong.cache} is more than max_tokens = {self.max_tokens}: "
                f"DAPO's is a fifth of it, {self.max_tokens // 5}"
            )
        if self.off_policy and self.importance_cap is None:
            raise ValueError("off_policy needs importance_cap, which weights its samples: 2.0 is common")
        if self.off_policy and self.generator == "vllm" and self.vllm.get("enable_sleep_mode"):
            raise ValueError("off_policy samples while vLLM would sleep: set vllm.enable_sleep_mode = false")
        if self.off_policy and self.offload_moments:
            raise ValueError("off_policy samples while Adam's moments are in use: leave out offload_moments")
        if self.final_learning_rate and not (self.decay and self.final_learning_rate < self.learning_rate):
            raise ValueError("final_learning_rate needs decay = true and must be smaller than learning_rate")
        if bool(self.steps) == (self.epochs is not None):
            raise ValueError("set either steps or epochs")
        if self.token_budget is not None and self.length_buckets > 1:
            raise ValueError("token_budget packs rows without padding: leave out length_buckets")
        # With one process, since a recipe does not say how many will be launched; the trainer asks again.
        self.shares(1)
        return self

    def rate_share(self, step: int, steps: int) -> float:
        """Return the share of `learning_rate`, from 0 to 1, in an optimizer step, from 0, of `steps`."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        if not self.decay:
            return 1.0
        final = self.final_learning_rate / self.learning_rate
        left = max(0.0, 1 - (step - self.warmup_steps) / max(1, steps - self.warmup_steps))
        return final + (1 - final) * left

    def shares(self, processes: int) -> tuple[int, int]:
        """Return (rows per forward pass, forward passes per generation batch) of each of `processes`.

        Raises ValueError if the batch cannot be divided evenly.
        """
        rows = self.groups * self.samples
        if self.token_budget is not None:
            if rows % (self.optimizer_steps * processes):
                raise ValueError(
                    f"groups * samples = {rows} is not a multiple of optimizer_steps * processes = "
                    f"{self.optimizer_steps} * {processes}"
                )
            # TRL gets the rows of an optimizer step as one micro-batch, which the trainer splits by tokens.
            return rows // (self.optimizer_steps * processes), self.optimizer_steps
        # A small batch on many processes may have fewer rows per step than a micro-batch holds.
        micro_batch = min(self.micro_batch, max(1, rows // (processes * self.optimizer_steps)))
        if rows % (micro_batch * self.optimizer_steps * processes):
            raise ValueError(
                f"groups * samples = {rows} is not a multiple of micro_batch * optimizer_steps * processes "
                f"= {micro_batch} * {self.optimizer_steps} * {processes}"
            )
        return micro_batch, rows // (micro_batch * processes)


class ReporterMissing(BadRecipe):
    """A reporter's package is not installed; the message says how to install it."""


def require_reporters(reporters: Iterable[Reporter]) -> None:
    """Raise ReporterMissing for a missing package, before the first stage instead of hours later."""
    for name in reporters:
        if find_spec(name) is None:
            raise ReporterMissing(f"rl.report_to names {name!r}: pip install 'tirjudge[{name}]'")
