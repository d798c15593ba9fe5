"""Training of LLM judges: SFT and RL on TRL, with rollouts that run the judge's programs in the sandbox.

    from pathlib import Path
    from tirjudge_training import Recipe, train

    model = train(Recipe.load("smol", ["rl.steps=10"]), Path("runs/mine"))

`Recipe` holds every setting of a run, `train` runs or resumes it, and `JudgeRolloutFunc` brings the rollouts
to a GRPOTrainer of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirjudge_training.recipe import Recipe
    from tirjudge_training.rl.trl_rollout import JudgeRolloutFunc
    from tirjudge_training.run.run import train

__all__ = ["JudgeRolloutFunc", "Recipe", "train"]

_HOMES = {
    "JudgeRolloutFunc": "tirjudge_training.rl.trl_rollout",
    "Recipe": "tirjudge_training.recipe",
    "train": "tirjudge_training.run.run",
}


def __getattr__(name: str) -> Any:
    """Import the names above on first use, so that `import tirjudge_training` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
