"""verl's checkpoints as model folders, and snapshots of the best validated steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.heldout import SNAPSHOTS, VALIDATION, best_steps
from tirjudge_training.launch.verl_config import CHECKPOINTS, VALIDATED, Backend
from tirjudge_training.recipe_file import CONFIG

STEP = "global_step_"
_LAST = "latest_checkpointed_iteration.txt"


class Snapshots:
    """verl's callback at checkpoints: it keeps the weights of the best validated steps, as model folders.

    Checkpoints hold Adam's moments too, so that verl keeps few; the best step may be an early one.
    """

    def __init__(self, config: Any) -> None:
        """`config` is verl's whole configuration."""
        self._folder = Path(config.trainer.default_local_dir).parent
        self._backend: Backend = config.actor_rollout_ref.actor.strategy

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, **_: Any) -> None:
        # verl validates a step after it has saved it, so that this step's result is not known yet.
        stage = tomllib.loads((self._folder.parent / CONFIG).read_text(encoding="utf-8"))
        drop_snapshots(self._folder, keep=stage["validation"]["keep"])
        merge(Path(checkpoint_dir), snapshot(self._folder, global_step), self._backend)


def snapshot(folder: Path, step: int) -> Path:
    """Return the model folder of a step, where `folder` is the folder `verl` of a stage."""
    return folder.parent / SNAPSHOTS / f"step-{step}"


def merge(checkpoint: Path, target: Path, backend: Backend) -> None:
    """Convert a checkpoint to a model folder in bfloat16 with verl's own model merger.

    Raises RuntimeError with the last line of the merger if it fails.
    """
    partial = target.with_name(f"partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    kind = "megatron" if backend == "megatron" else "fsdp"
    places = ["--local_dir", str(checkpoint / "actor"), "--target_dir", str(partial)]
    words = ["verl.model_merger", "merge", "--backend", kind, *places]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"verl's model merger failed on {checkpoint}: {' '.join(last)}")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def validated(folder: Path) -> dict[int, tuple[int, int]]:
    """Return, by step, how many validation tasks were answered right, and of how many."""
    return {int(path.stem): _right(path) for path in sorted((folder / VALIDATED).glob("*.jsonl"))}


def _right(path: Path) -> tuple[int, int]:
    """Return the tasks of a validated step with the right answer in all views, and all tasks."""
    tasks: dict[str, bool] = {}
    for row in read_lines(path):
        # A rollout's name is TASK_SAMPLE_OUTPUT, or TASK_VIEW_SAMPLE_OUTPUT of a judge with linked views.
        task = str(row["uid"]).partition("_")[0]
        tasks[task] = tasks.get(task, True) and row["teaches"] == 1.0
    return sum(tasks.values()), len(tasks)


def drop_snapshots(folder: Path, *, keep: int) -> None:
    """Delete the snapshots of all validated steps but the best `keep` ones."""
    for step in best_steps(validated(folder))[keep:]:
        shutil.rmtree(snapshot(folder, step), ignore_errors=True)


def checkpoint(folder: Path) -> tuple[int, Path] | None:
    """Return step and folder of the latest complete checkpoint; None if there is none."""
    marker = folder / CHECKPOINTS / _LAST
    if not marker.exists():
        return None
    step = int(marker.read_text(encoding="utf-8"))
    return step, folder / CHECKPOINTS / f"{STEP}{step}"


def record_validation(stage: RunFolder, folder: Path) -> None:
    """Write every validated step as our own trainer does, for the selection that follows."""
    rows = [
        {"step": step, "correct": right, "n": n} for step, (right, n) in sorted(validated(folder).items())
    ]
    stage.write(VALIDATION, "".join(json.dumps(row) + "\n" for row in rows))


def metrics(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the metrics of each step, as verl's file logger writes them."""
    for row in read_lines(path):
        yield row.get("data", row)
