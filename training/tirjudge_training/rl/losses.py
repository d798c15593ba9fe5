"""The losses that RL can train with, found by name, and importance weights of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from tirjudge_sandbox.registry import Plugins

LOSSES = Plugins(
    "tirjudge.losses",
    "loss",
    "tirjudge_training.rl",
    {"dapo": "losses:Dapo", "per_response": "losses:PerResponse", "sequence": "losses:Sequence"},
)
"""Each member, called without arguments, returns a `Loss`."""


def open_loss(name: str) -> Loss:
    """Return the loss of this name. Raises ValueError, in one line, for an unknown name."""
    return cast(Loss, LOSSES.open(name))


class Loss(ABC):
    """A policy-gradient loss over the completion tokens that the model wrote.

    Clipping, the KL term and the entropy bonus are set by other keys of `[rl]` and apply to every loss.
    """

    mean_of: ClassVar[str] = "tokens"
    """`tokens` or `responses`: the unit that a generation batch is averaged over.

    TRL sums a loss over tokens by the batch's own count, but averages a loss over responses within each
    micro-batch, fillers included. The trainer rescales the latter by the batch's number of real responses.
    """

    @abstractmethod
    def arguments(self) -> Mapping[str, Any]:
        """Return the fields of TRL's GRPOConfig that select this loss."""

    def compute(self, trl: Callable[[Any, Any], Any], model: Any, inputs: Mapping[str, Any]) -> Any:
        """Return the loss of some rows, a tensor without dimensions; by default `trl(model, inputs)`.

        `trl` is GRPOTrainer's own computation and `inputs` are its tensors, `[rows, tokens]`: prompt_ids,
        completion_ids, completion_mask, tool_mask (0 on the sandbox's output), old_per_token_logps and
        ref_per_token_logps where they are needed, and advantages, `[rows]` or `[rows, tokens]`.
        """
        return trl(model, inputs)


class Dapo(Loss):
    """Averages over all tokens of a batch with equal weight (TIR-Judge Eq. 2, JudgeLRM footnote 2)."""

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "dapo", "importance_sampling_level": "token"}


class PerResponse(Loss):
    """Averages over the tokens of each response, and then over the responses (RM-R1 Eq. 9)."""

    mean_of = "responses"

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "grpo", "importance_sampling_level": "token"}


class Sequence(Loss):
    """Averages over responses, with the geometric mean of a response's token ratios as its one ratio.

    The loss of GSPO and of the rationale judge: inferred from the latter's Eq. 5, whose ratio has no token
    index, and from its clip of 2e-4, which is as narrow as GSPO's.
    """

    mean_of = "responses"

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "grpo", "importance_sampling_level": "sequence"}


def truncated_weights(trained: Any, sampled: Any, cap: float) -> Any:
    """Return each token's ratio of trainer to sampler probability, at most `cap`, without a gradient.

    Two engines round differently with the same weights, which makes the samples slightly off-policy (Yao et
    al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025). `trained` and
    `sampled` are logprobs `[rows, completion tokens]`.
    """
    return (trained.detach() - sampled).exp().clamp(max=cap)
