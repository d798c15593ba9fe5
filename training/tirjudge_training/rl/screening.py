"""A pass over all training rows before RL, which finds the rows that teach something."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_environments import Reward, derive_seed
from tirjudge_environments.types import FrozenModel
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.dynamic_sampling import ScoredRollouts

SCREENED = "screened.jsonl"
"""The file of a pass: for each row its id, its scored `samples`, and how many were `right` in all views."""


class ScreenConfig(FrozenModel):
    """A pass over all training rows before RL, which leaves out rows that teach nothing (ours)."""

    samples: int = Field(default=8, gt=1)
    """Rollouts per row. Rows that are right in all rollouts, or in none, are left out."""
    replay: float = Field(default=0.0, ge=0, lt=1)
    """Share of the rows of RL that are known rows, right in all samples. They teach only if the policy
    forgets them."""
    passed: Path | None = None
    """The folder of a stage `screen` of another run with the same rows, whose pass is used instead of a new
    one."""


def screened(rollouts: ScoredRollouts) -> JsonObject:
    """Return how many scored samples of a row are right in all of their views."""
    scored = [scores for scores in rollouts.scores if all(isinstance(one, Reward) for one in scores)]
    right = sum(all(isinstance(one, Reward) and one.teaches for one in scores) for scores in scored)
    return {"id": rollouts.formatted.task.id, "samples": len(scored), "right": right}


def always_right(row: JsonObject) -> bool:
    """Return True for a screened row that is right in all of its scored samples, of which there are some."""
    return bool(row["samples"]) and row["right"] == row["samples"]


def always_wrong(row: JsonObject) -> bool:
    """Return True for a screened row that is right in none of its scored samples, of which there are some."""
    return bool(row["samples"]) and not row["right"]


def teaching_rows(folder: Path, config: ScreenConfig, seed: int) -> frozenset[str]:
    """Return the ids of the rows that RL draws from: mixed rows, and a share of rows that are always right.

    Raises BadRecipe if the pass leaves no mixed row.
    """
    rows = list(read_lines(folder / SCREENED))
    mixed = [row["id"] for row in rows if not (always_right(row) or always_wrong(row))]
    if not mixed:
        raise BadRecipe(
            f"rl.screen: each of the {len(rows)} rows is always right or always wrong: use other rows, or a "
            "start that is right more or less often"
        )
    known: Iterable[str] = (row["id"] for row in rows if always_right(row))
    # `replay` is a share of mixed and known rows together, hence the division.
    replayed = round(len(mixed) * config.replay / (1 - config.replay))
    return frozenset([*mixed, *sorted(known, key=lambda id: derive_seed("replay", seed, id))[:replayed]])
