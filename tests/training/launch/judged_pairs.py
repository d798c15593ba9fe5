"""Rows and a recipe for the miniature, which judges them with programs; its RL stages are verl's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.miniature import TRAINED

MINI = TRAINED
RECIPE = """
method = "iterative"

[model]
base = "{model}"

[data]
train = "{rows}"
max_prompt_tokens = 1024

[environments.alone]
name = "tir-pointwise"
options.prompts = "mini"

[environments.pairs]
name = "tir-pairwise"
options.prompts = "mini"

[rl]
trainer = "verl"
steps = 2
groups = 4
samples = 4
max_tokens = 160
filter = "none"
learning_rate = 1e-3

[rejection]
samples = 2

[sft]
batch = 2
micro_batch = 1
epochs = 1

[validation]
n = 1
every = 1
"""


def rows(count: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "id": f"row-{number}",
            "environment": "alone" if number % 2 else "pairs",
            "prompt": f"The response must contain exactly {number + 2} words.",
            "responses": [" ".join(["yes"] * (number + 2)), "no no no no no no no no no no no no"],
            "label": "A",
        }
        for number in range(count)
    ]


def write_recipe(folder: Path) -> Path:
    """Write rows and a recipe, and return the recipe."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    recipe = folder / "tiny.toml"
    recipe.write_text(RECIPE.format(model=MINI, rows=folder / "rows.jsonl"))
    return recipe
