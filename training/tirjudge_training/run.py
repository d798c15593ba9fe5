"""A training run: stages in order, each with its folder, its configuration and its mark of completion."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tirjudge.run_folder import RunFolder, write_atomically
from tirjudge_environments import derive_seed
from tirjudge_sandbox import open_sandbox
from tirjudge_training import miniature
from tirjudge_training.card import model_card
from tirjudge_training.config import difference, to_toml
from tirjudge_training.grouping import Draw
from tirjudge_training.heldout import lines, measure
from tirjudge_training.journal import METRICS
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl_stage import train_rl
from tirjudge_training.samples import Sample
from tirjudge_training.sft import train_sft
from tirjudge_training.synthesis import train_draw
from tirjudge_training.warmup import corpus

CONFIG, DONE, BASE, MODEL = "config.toml", "done.json", "base", "model"

Say = Callable[[str], None]


class RunMismatch(ValueError):
    """The folder holds another run; the text is one line and says what differs."""


def train(recipe: Recipe, folder: Path, *, command: str, say: Say) -> Path:
    """Run what is left of `recipe` in `folder`; returns the trained model's folder.

    Finished stages are not repeated, and an interrupted one goes on from its last checkpoint. Raises
    RunMismatch for the folder of another recipe, and Locked while another process trains there.
    """
    with RunFolder(folder) as run:
        _claim(run, recipe)
        stage = partial(_stage, run, say=say)
        warm = stage("warmup", recipe.sft, lambda folder: _warm_up(folder, recipe, say))
        before = stage("heldout-before", recipe.heldout, lambda _: _measure(warm / MODEL, recipe, say))
        rl = stage("rl", recipe.rl, lambda folder: _reinforce(warm / MODEL, folder, recipe, say))
        after = stage("heldout-after", recipe.heldout, lambda _: _measure(rl / MODEL, recipe, say))
        card = model_card(recipe, command, rl=_result(rl), before=_result(before), after=_result(after))
        write_atomically(rl / MODEL / "README.md", card)
    return rl / MODEL


def source(groups: int, seed: int) -> Callable[[int, int, int], Draw]:
    """(step, round, position) to a task: the batches go through one stream, replacements through others."""

    def deal(step: int, turn: int, position: int) -> Draw:
        stream = derive_seed("rl", seed) if turn == 0 else derive_seed("rl replacement", seed, turn)
        return train_draw(step * 4 * groups + position, stream)

    return deal


def _claim(run: RunFolder, recipe: Recipe) -> None:
    """Write the resolved recipe down, or refuse to mix two runs in one folder."""
    path, text = run.path / CONFIG, to_toml(recipe)
    if not path.exists():
        run.write(CONFIG, text)
        return
    found = difference(tomllib.loads(path.read_text(encoding="utf-8")), tomllib.loads(text))
    if found is not None:
        raise RunMismatch(f"{path} has another {found}: use the same recipe, or another --output")


def _stage(
    run: RunFolder, name: str, config: BaseModel, work: Callable[[RunFolder], Any], *, say: Say
) -> Path:
    """Run one stage in a folder of its own, unless it is done; returns the folder."""
    path = run.path / name
    if (path / DONE).exists():
        say(f"{name}: done")
        return path
    with RunFolder(path) as stage:
        stage.write(CONFIG, to_toml(config))
        result = work(stage)
        stage.write(DONE, json.dumps(result, indent=2) + "\n")
    return path


def _result(stage: Path) -> Any:
    return json.loads((stage / DONE).read_text(encoding="utf-8"))


def _warm_up(stage: RunFolder, recipe: Recipe, say: Say) -> dict[str, Any]:
    model, tokenizer = miniature.build_model(recipe.seed)
    miniature.save(stage.path / BASE, model, tokenizer)
    say(f"warm-up: writing {recipe.corpus.samples} samples")

    async def write() -> list[Sample]:
        async with open_sandbox() as sandbox:
            return await corpus(tokenizer, sandbox, recipe.corpus, recipe.seed)

    samples = asyncio.run(write())
    model = train_sft(stage.path / BASE, stage, recipe.sft, samples, seed=recipe.seed, say=say)
    miniature.save(stage.path / MODEL, model, tokenizer)
    return {"samples": len(samples)}


def _reinforce(start: Path, stage: RunFolder, recipe: Recipe, say: Say) -> dict[str, Any]:
    from transformers import AutoTokenizer

    model = train_rl(
        start,
        stage,
        recipe.rl,
        environments=miniature.open_environments(),
        source=source(recipe.rl.groups, recipe.seed),
        seed=recipe.seed,
        say=say,
    )
    miniature.save(stage.path / MODEL, model, AutoTokenizer.from_pretrained(start))
    rows = list(stage.read(METRICS))
    parts = ("rollout", "train", "programs")
    return {
        "steps": len(rows),
        "seconds": sum(row["seconds/rollout"] + row["seconds/train"] for row in rows),
        "cpu_seconds": sum(row[f"cpu_seconds/{part}"] for row in rows for part in parts),
    }


def _measure(model: Path, recipe: Recipe, say: Say) -> dict[str, Any]:
    say(f"held-out: {recipe.heldout.n} tasks of each format")
    found = measure(model, recipe.heldout)
    for line in lines(found):
        say(line)
    return found
