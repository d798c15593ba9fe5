"""The files that a run reads: its rows and its base model, recorded by digest when it begins."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.run_settings import OtherSettings
from tirjudge.storage.settings_text import recorded_table
from tirjudge_training.corpora.build import DATA
from tirjudge_training.data.base import data_path
from tirjudge_training.methods import Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl.training_loop import CHECKPOINTS
from tirjudge_training.stages.base import DONE, Say, Stage

INPUTS = "inputs.json"
"""The file of a run folder with a digest of every file that the run reads, by recipe key."""
PIECE, PIECES = 2**20, 64
"""Bytes of a piece, and the number of pieces that are read of a larger file."""
Digests = dict[str, dict[str, str]]
"""Digests by recipe key, and by the name of the file in the folder that the key names."""


def digest(path: Path) -> str:
    """Return a digest of a file: of its content, or of size and 64 pieces if it is larger than 64 MiB."""
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= PIECE * PIECES:
            found.update(file.read())
        else:
            # Weights: reading all of a large model would take minutes at every start.
            for number in range(PIECES):
                file.seek((size - PIECE) * number // (PIECES - 1))
                found.update(file.read(PIECE))
    return found.hexdigest()


def inputs_of(recipe: Recipe) -> Digests:
    """Return the digests of the files that a recipe names; a model on the hub has no files here."""
    data = recipe.data
    named = {
        "data.train": data.train,
        "data.demonstrations": data.demonstrations,
        "data.heldout": data.heldout,
        "data.validation": data.validation,
        "model.base": Path(recipe.model.start),
    }
    paths = {key: data_path(path) for key, path in named.items() if isinstance(path, Path)}
    return {key: dict(_digests(path, key)) for key, path in paths.items() if path.exists()}


def claim_inputs(
    folder: RunFolder,
    recipe: Recipe,
    pipeline: Pipeline,
    folders: Digests,
    *,
    begun: bool,
    repeat: bool,
    say: Say,
) -> None:
    """Record the files that a run reads, or compare them with those that it began with.

    `folders` has the digests of the folders and archives that rows name, see `RowData.folders`.
    What depends on a changed file begins again if that loses neither a finished stage nor a checkpoint, or if
    `repeat` asks for it; otherwise raises OtherSettings. A run that was `begun` and lost its record goes
    on with a note.
    """
    path, present = folder.path / INPUTS, inputs_of(recipe)
    remedy = "put the former file back; without it a change of rows or weights would not be noticed"
    recorded = recorded_table(path, remedy) if path.exists() else None
    for key, named in folders.items():
        present[key] = present.get(key, {}) | dict(sorted(named.items()))
    if recorded is not None:
        changed = _changed(recorded, present)
        stages = [
            stage
            for stage in pipeline.stages
            if (folder.path / stage.name).exists() and any(_reads(stage, key, recipe) for key in changed)
        ]
        costly = [
            stage.name
            for stage in stages
            if (folder.path / stage.name / DONE).exists() or (folder.path / stage.name / CHECKPOINTS).exists()
        ]
        if costly and not repeat:
            key, file = next(iter(changed.items()))
            raise OtherSettings(
                f"{key}: {file} is not the one that {folder.path} began with: choose another --output, put "
                f"the former file back, or repeat what depends on it with --repeat ({', '.join(costly)})"
            )
        for stage in stages:
            say(f"{stage.name}: begins again, since {' and '.join(changed)} changed")
            shutil.rmtree(folder.path / stage.name)
    elif begun:
        say(
            f"{path} is missing, so that a change of rows or weights since the run began would not be noticed"
        )
    folder.write(INPUTS, json.dumps(present, indent=2) + "\n")


def _digests(path: Path, key: str) -> Iterator[tuple[str, str]]:
    if path.is_file():
        yield path.name, digest(path)
        return
    # Of a corpus its rows, and of a model its own files without those of checkpoints.
    rows = path / DATA if (path / DATA).is_dir() else path
    files = path.glob("*") if key == "model.base" else rows.rglob("*")
    for file in sorted(file for file in files if file.is_file()):
        yield file.relative_to(path).as_posix(), digest(file)


def _changed(recorded: Mapping[str, Mapping[str, str]], present: Digests) -> dict[str, str]:
    """Return the first file that differs, by key."""
    found = {}
    for key in recorded.keys() | present.keys():
        before, now = recorded.get(key, {}), present.get(key, {})
        differing = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if differing:
            found[key] = differing[0]
    return dict(sorted(found.items()))


def _reads(stage: Stage, key: str, recipe: Recipe) -> bool:
    """Return True if the result of a stage depends on the files of a key."""
    if key == "data.heldout":
        return stage.measures
    # The initial model is measured on held-out rows alone, which may be a share of the training rows.
    if stage.measures and stage.start is None and isinstance(recipe.data.heldout, Path):
        return key == "model.base"
    return True
