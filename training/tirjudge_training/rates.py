"""The assumed speed and price of a machine, from which `--plan` estimates hours and dollars."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_training.stages.base import Size

SAMPLING, TRAINING = 2, 8
"""Operations per parameter and token.

Sampling is one forward pass. Training is a forward pass, a backward pass of twice its cost, and the forward
pass that gradient checkpointing repeats.
"""


class Rates(BaseModel):
    """The speeds, sizes and prices of a plan. The defaults are assumptions of ours, not measurements."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: int = Field(default=1, gt=0)
    prompt_tokens: int = Field(default=1500, gt=0)
    """Mean prompt tokens per trajectory."""
    response_tokens: int = Field(default=600, gt=0)
    """Mean response tokens per trajectory, the sandbox's included."""
    sampled_per_second: float | None = Field(default=None, gt=0)
    """Response tokens per second and device, programs included; None derives it from `sampling_share`."""
    trained_per_second: float | None = Field(default=None, gt=0)
    """Tokens per second and device, prompts included; None derives it from `training_share`."""
    peak: float = Field(default=989e12, gt=0)
    """Operations per second and device; the default is an H100 SXM in bf16, without sparsity."""
    sampling_share: float = Field(default=0.1, gt=0, le=1)
    """Share of `peak` that sampling reaches."""
    training_share: float = Field(default=0.4, gt=0, le=1)
    """Share of `peak` that training reaches."""
    memory: float = Field(default=80e9, gt=0)
    """Memory per device in bytes; the default is an H100's."""
    rows_at_once: int = Field(default=32, gt=0)
    """Trajectories that one device generates at once, for the estimate of the KV cache."""
    dollars: float = Field(default=3.0, ge=0)
    """Dollars per hour and device; TIR Table 8's $690 for 29 hours of eight devices are 2.97."""
    teacher_prompt_dollars: float = Field(default=0.0, ge=0)
    """Dollars per million tokens that a teacher reads."""
    teacher_response_dollars: float = Field(default=0.0, ge=0)
    """Dollars per million tokens that a teacher writes."""
    tasks: Mapping[str, int] = Field(default_factory=dict)
    """Number of rows per judge, for a plan made before the rows of `data.train` exist."""

    def sampled(self, parameters: int) -> float:
        """Return response tokens per second and device."""
        return self.sampled_per_second or self.sampling_share * self.peak / (SAMPLING * parameters)

    def trained(self, parameters: int) -> float:
        """Return trained tokens per second and device."""
        return self.trained_per_second or self.training_share * self.peak / (TRAINING * parameters)

    def tokens(self, size: Size) -> tuple[int, int]:
        """Return the least and the most tokens, sampled or trained, without and with replacements."""
        passed = size.trained * (self.prompt_tokens + self.response_tokens)
        least, most = (n * self.response_tokens for n in (size.sampled, size.sampled + size.resampled))
        return least + passed, most + passed

    def cost(self, seconds: float) -> float:
        """Return the dollars for all devices over so many seconds."""
        return seconds / 3600 * self.devices * self.dollars

    def teacher_cost(self, dialogues: int) -> float:
        """Return dollars, if each dialogue is read once, which prompt caching comes close to."""
        read, written = self.prompt_tokens, self.response_tokens
        each = read * self.teacher_prompt_dollars + written * self.teacher_response_dollars
        return dialogues * each / 1e6

    def seconds(self, size: Size, parameters: int) -> tuple[float, float]:
        """Return the least and the most seconds of a stage on all devices: without and with replacements."""
        whole = self.prompt_tokens + self.response_tokens
        passed = size.trained + size.compared * SAMPLING / TRAINING
        training = passed * whole / self.trained(parameters)
        each = self.response_tokens / self.sampled(parameters)
        least, most = (n * each + training for n in (size.sampled, size.sampled + size.resampled))
        return least / self.devices, most / self.devices
