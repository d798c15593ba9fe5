"""LoRA (Hu et al. 2021) through PEFT: small adapters are trained instead of the model's weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.model_files import Adapter


class LoraConfig(BaseModel):
    """The adapter of a training stage, merged into the model that the stage writes. Defaults are ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers with an adapter, `q_proj`, ...; empty means all except the output layer."""

    def adapter(self) -> Any:
        """Return PEFT's configuration, without dropout, so that sampler and trainer have the same policy."""
        from peft import LoraConfig as PeftLora

        return PeftLora(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
            target_modules=list(self.targets) or "all-linear",
            task_type="CAUSAL_LM",
        )


def merged(model: Any, folder: Path) -> Any:
    """Return the base model with the adapter in `folder` merged into its weights."""
    from peft import PeftModel

    with warnings.catch_warnings():
        # PEFT 0.21 still uses the name that transformers has deprecated.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated")
        return PeftModel.from_pretrained(model, folder).merge_and_unload()


def base_of(folder: Path) -> str | None:
    """Return the base model of the adapter in a folder; None if the folder holds a full model.

    Raises GeneratorFailed if the base model does not exist.
    """
    adapter = Adapter.of(folder)
    return None if adapter is None else adapter.base
