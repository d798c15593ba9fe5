"""The interface of a loss: which of TRL's losses it is, how it is averaged, and what it adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class Loss(ABC):
    """A policy-gradient loss over the completion tokens that the model wrote.

    Clipping, the KL term and the entropy bonus are set by other keys of `[rl]` and apply to every loss.
    """

    mean_of: ClassVar[str] = "tokens"
    """`tokens` or `responses`: the unit that a generation batch is averaged over.

    TRL sums a loss over tokens by the batch's own count, but averages one over responses within each
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
