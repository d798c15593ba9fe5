"""A recipe: every choice of a training run, stage by stage."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_training.heldout import HeldoutConfig
from tirjudge_training.rl_config import RlConfig
from tirjudge_training.sft import SftConfig
from tirjudge_training.warmup import WarmupConfig


class Recipe(BaseModel):
    """The miniature's run: warm-up corpus, supervised warm-up, RL, and what is measured on the way."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    description: str = ""
    seed: int = 0
    """Everything drawn in a run is a function of it."""
    threads: int = Field(default=1, gt=0)
    """CPU threads of torch; a model of this size loses with more, most of all beside other busy processes."""
    corpus: WarmupConfig = WarmupConfig()
    sft: SftConfig = SftConfig()
    rl: RlConfig
    heldout: HeldoutConfig = HeldoutConfig()
