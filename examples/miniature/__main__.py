"""Makes what the recipes of the miniature need: rows, and a start that knows the dialogue.

    python -m examples.miniature --output runs/miniature
    tirjudge train --recipe examples/miniature/recipes/mini.toml

`train.jsonl` and `heldout.jsonl` share no word, threshold or wording. `start/model` is a network with random
weights after a supervised warm-up on the scripted teacher's dialogues. Both are functions of the seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

from examples.miniature.model import MINIATURE, ShapeConfig, build_model, save
from examples.miniature.synthesis import CANDIDATES, heldout_tasks, train_task
from examples.miniature.warmup_corpus import CorpusConfig, corpus
from tirjudge.cli.output import log
from tirjudge.storage.durable_files import RunFolder
from tirjudge_environments import JudgeTask
from tirjudge_sandbox import open_sandbox
from tirjudge_training import model_folder
from tirjudge_training.distributed.processes import ALONE
from tirjudge_training.sft import Sample, SftConfig, train_sft

SFT = SftConfig(batch=32, micro_batch=32, learning_rate=3e-3, warmup_steps=30, checkpoint_every=200)


def row(format: str, task: JudgeTask) -> dict[str, Any]:
    """Return a task as a row of training data, for the judge `format`."""
    return {
        "id": task.id,
        "prompt": task.prompt[0].content,
        "responses": list(task.candidates),
        "label": task.label,
        "domain": task.domain,
        "environment": format,
        "families": [task.gold["family"]],
    }


def training_rows(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield `n` rows with different ids, formats by weight and families evenly."""
    seen: set[str] = set()
    stream = (train_task(index, seed) for index in count())
    for one in islice((one for one in stream if one.task.id not in seen), n):
        seen.add(one.task.id)
        yield row(one.format, one.task)


def write_rows(folder: Path, train: int, heldout: int, seed: int) -> None:
    """Write the training rows, and `heldout` rows of each format."""
    measured = (row(format, task) for format in CANDIDATES for task in heldout_tasks(format, heldout, seed))
    _write(folder / "train.jsonl", training_rows(train, seed))
    _write(folder / "heldout.jsonl", measured)


def write_start(
    folder: Path,
    config: CorpusConfig,
    *,
    sft: SftConfig = SFT,
    shape: ShapeConfig = MINIATURE,
    seed: int = 0,
    say: Callable[[str], None] = log,
) -> Path:
    """Build the network in `folder`, and warm it up; returns the folder of its model."""
    model, tokenizer = build_model(seed, shape)
    with RunFolder(folder) as run:
        save(folder / "base", model, tokenizer)

        async def written() -> list[Sample]:
            async with open_sandbox() as sandbox:
                return await corpus(tokenizer, sandbox, config, seed, say)

        trained = train_sft(folder / "base", run, sft, asyncio.run(written()), seed=seed, say=say)
        model_folder.save(folder / "model", trained, start=str(folder / "base"), note={}, processes=ALONE)
    return folder / "model"


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")


def main() -> None:
    """Write the rows and the start."""
    parser = argparse.ArgumentParser(prog="python -m examples.miniature", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/miniature"), help="the folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=12_000, help="training rows")
    parser.add_argument("--heldout", type=int, default=500, help="held-out rows of each format")
    parser.add_argument("--scale", type=float, default=1, help="multiply the samples of the warm-up")
    parser.add_argument(
        "--text-only", action="store_true", help="write text/model, a start that has never seen a program"
    )
    given = parser.parse_args()
    write_rows(given.output, given.rows, given.heldout, given.seed)
    config = CorpusConfig()
    parts = ("programs", "readings", "dialogues")
    scaled = {name: round(getattr(config, name) * given.scale) for name in parts}
    config = config.model_copy(update=scaled).for_share(float(given.text_only))
    folder = given.output / ("text" if given.text_only else "start")
    print(write_start(folder, config, seed=given.seed))


if __name__ == "__main__":
    main()
