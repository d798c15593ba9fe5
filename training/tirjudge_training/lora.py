"""LoRA (Hu et al. 2021) through PEFT: what is trained instead of the model's own weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.model_files import Adapter


class LoraConfig(BaseModel):
    """The adapter of a training stage; the model that the stage leaves has it merged. Defaults are ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    """The product of the two small matrices counts alpha / rank times."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers that get one, `q_proj`, ...; none named is all but the output layer."""

    def adapter(self) -> Any:
        """As PEFT takes it. Without dropout: the sampler's policy must be the trainer's."""
        from peft import LoraConfig as PeftLora

        return PeftLora(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
            target_modules=list(self.targets) or "all-linear",
            task_type="CAUSAL_LM",
        )


def merged(model: Any, folder: Path) -> Any:
    """The base model with the adapter in `folder` added to its weights."""
    from peft import PeftModel

    with warnings.catch_warnings():
        # PEFT 0.21 still asks transformers by the name that it has given up.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated")
        return PeftModel.from_pretrained(model, folder).merge_and_unload()


def base_of(folder: Path) -> str | None:
    """The model that the adapter in a folder belongs to; None for the folder of a whole model.

    Raises GeneratorFailed where that model is gone.
    """
    adapter = Adapter.of(folder)
    return None if adapter is None else adapter.base
