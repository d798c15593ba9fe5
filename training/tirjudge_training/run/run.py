"""A training run: its stages in order, each done once, even if the process is killed in between."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from tirjudge.storage.durable_files import RunFolder, disk_full_errors
from tirjudge.storage.json_lines import JsonObject
from tirjudge.storage.settings_text import recorded_table
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.types import THINK
from tirjudge_training.data.base import Data
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.interruption import Interrupted
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import release
from tirjudge_training.methods import Pipeline, pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG, BadRecipe, claim_folder, to_toml
from tirjudge_training.rl.training_loop import CHECKPOINTS
from tirjudge_training.run.context import context, counted, data_of, encoder_of, with_dtype
from tirjudge_training.run.further_steps import longer, reopen
from tirjudge_training.run.inputs import claim_inputs
from tirjudge_training.run.model_size import require_model
from tirjudge_training.run.preflight import check, require_packages
from tirjudge_training.run.results import RESULTS, ROWS, rows_line, say_gain, table
from tirjudge_training.stages.base import DONE, Run, Say, Stage
from tirjudge_training.stages.reinforcement import Reinforcement


def train(
    recipe: Recipe, folder: Path, *, repeat: bool = False, say: Say = print, processes: Processes = ALONE
) -> Path:
    """Run a recipe in `folder`, or resume it there; returns the folder of the trained model.

    Finished stages are not repeated, and an interrupted stage is resumed. `repeat` trains what depends on
    files that have changed since the run began once more, see `claim_inputs`. `say` receives lines of
    progress, which are printed by default. With several `processes`, each process makes this call; the first
    one logs, and writes all files but the rows and shards of the others. Raises BadRecipe, OtherSettings for
    the folder of another recipe, or of other rows or weights, Locked while another run is using it, TooSmall,
    ReporterMissing, and OtherTrainer for an RL stage of verl's.
    """
    processes.first(lambda: require_packages(recipe))  # before a model is converted
    recipe = with_dtype(recipe, folder)
    # All of this happens before the folder is touched: a recipe that cannot run leaves nothing behind.
    processes.first(lambda: require_model(recipe.model.start))
    data = data_of(recipe)
    pipeline = pipeline_of(counted(recipe, data))
    processes.first(lambda: _hand_over(pipeline, folder))
    processes.first(lambda: check(recipe, pipeline, data, folder, say))
    processes.first(lambda: _check_template(recipe, pipeline, data))
    with disk_full_errors(folder), processes.folder(folder) as run_folder:
        processes.first(lambda: claim(run_folder, recipe, pipeline, data, repeat=repeat, say=say))
        say = say if processes.rank == 0 else (lambda line: None)
        run = context(recipe, data, folder, say, processes)
        if isinstance(data, RowData):
            counts = data.counts()
            run_folder.write(ROWS, json.dumps(counts, indent=2) + "\n")
            say(f"{rows_line(counts, recipe.data.max_prompt_tokens)}; {data.split}")
        # In order: each stage may use the models and samples of those before it.
        of = len(pipeline.stages)
        results = {
            stage.name: _done(stage, run, f"stage {number} of {of}")
            for number, stage in enumerate(pipeline.stages, 1)
        }
        if pipeline.models:
            run_folder.write(RESULTS, table(pipeline, results))
            processes.first(lambda: say_gain(pipeline, folder, say))
        return Path(run.model(pipeline.result))


def _hand_over(pipeline: Pipeline, folder: Path) -> None:
    """Raise OtherTrainer if the next stage to do is verl's, before anything is checked or written."""
    left = next((stage for stage in pipeline.stages if not (folder / stage.name / DONE).exists()), None)
    if isinstance(left, Reinforcement):
        left.require_trl()


def _check_template(recipe: Recipe, pipeline: Pipeline, data: Data) -> None:
    """Refuse a model without a usable chat template, which every stage needs.

    Refuse a teacher, too, if the student's template opens a thinking, which no teacher's dialogue closes:
    hidden reasoning is not learned, so that the student would learn turns that its judge cannot read.
    """
    encoder = encoder_of(recipe)
    if not any(stage.asks_teacher for stage in pipeline.stages):
        return
    for one in {task.format: task for task in data.prompts(None, recipe.seed)}.values():
        judge = data.environments[one.format]
        prompt = shown_prompt(judge, one.task, judge.views(one.task)[0])
        if encoder.opening(prompt).startswith(THINK) and not prompt.prefill.startswith(THINK):
            raise BadRecipe(
                f"method: the chat template of {recipe.model.base} opens {THINK}, and the dialogues of a "
                "teacher have no reasoning to close: set model.enable_thinking=false, or distil into another "
                "model"
            )


def claim(
    folder: RunFolder,
    recipe: Recipe,
    pipeline: Pipeline,
    data: Data,
    *,
    repeat: bool = False,
    say: Say = print,
) -> None:
    """Store the resolved recipe in a run folder, and digests of the files that the run reads.

    Raises OtherSettings if the folder holds another run, or one with other rows or another base model.
    """
    begun = (folder.path / CONFIG).exists()
    # Before the new numbers are stored, which could not be taken back.
    going_on = longer(folder.path, pipeline, repeat=repeat)
    moved = claim_folder(folder, recipe)
    named = data.folders if isinstance(data, RowData) else {}
    claim_inputs(folder, recipe, pipeline, named, begun=begun, repeat=repeat, say=say)
    reopen(folder.path, going_on, say)
    for line in moved:
        say(line)


def _done(stage: Stage, run: Run, place: str) -> JsonObject:
    """Return the result of a stage: from its folder if it is done, else by doing its work.

    `place` is the number of the stage in words.
    """
    path, processes = run.path / stage.name, run.processes
    # One answer for all: a process that skipped the stage would let the others wait for it for ever.
    if processes.first((path / DONE).exists):
        run.say(f"{stage.name}: done")
    else:
        run.say(f"{stage.name}: {place}")
        with disk_full_errors(path):
            # The other processes open files of their own in it, and may do so before the first one.
            processes.first(lambda: path.mkdir(parents=True, exist_ok=True))
            with processes.folder(path) as folder:
                folder.write(CONFIG, to_toml(stage))
                own = replace(run, say=lambda line: run.say(f"{stage.name}: {line}"))
                work = partial(stage.work, folder, own)
                try:
                    result = work() if stage.distributed else processes.first(work)
                except KeyboardInterrupt as stopped:
                    raise Interrupted(_left(stage, path, stopped)) from None
                release()
                # Written last: a stage without this file is resumed.
                folder.write(DONE, json.dumps(result, indent=2) + "\n")
    remedy = "delete it, and the same command ends the stage again"
    return processes.first(lambda: recorded_table(path / DONE, remedy))


def _left(stage: Stage, path: Path, stopped: KeyboardInterrupt) -> str:
    """Return one line about an interrupted stage: what is lost, and where the same command goes on."""
    why = str(stopped) or "interrupted"
    saved = checkpoints.latest(path / CHECKPOINTS)
    if not stage.disk().checkpoints:
        return f"{stage.name}: {why}; the same command resumes it, and keeps what is finished"
    if saved is None:
        return f"{stage.name}: {why} before its first checkpoint; the same command starts this stage again"
    kept = "" if str(stopped) else " from its last checkpoint; the steps after it are repeated"
    return f"{stage.name}: {why}; the same command resumes{kept or ' there'}"
