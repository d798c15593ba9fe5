"""A training run: its stages in order, each done once, even if the process is killed in between."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tirjudge.cli.output import log
from tirjudge.console_text import markdown_table
from tirjudge.models.resolve import read_note
from tirjudge.statistics import paired_difference
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge.storage.run_folder import RunFolder, disk_full_errors
from tirjudge_environments import ChatEncoder
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.registry import reward_options
from tirjudge_environments.types import THINK
from tirjudge_training import model_folder
from tirjudge_training.data.base import TRAIN, WITHOUT_TOOLS, Data, demonstrated
from tirjudge_training.data.rows import JUDGES, RowData, require_rows
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.device import Kernels, current_device, weights_dtype
from tirjudge_training.distributed.interruption import Interrupted
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import release
from tirjudge_training.heldout import ANSWERS, percentage
from tirjudge_training.methods import HELDOUT, Pipeline, pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG, BadRecipe, claim_folder, to_toml
from tirjudge_training.rl.training_loop import CHECKPOINTS
from tirjudge_training.run.model_size import model_errors, require_model
from tirjudge_training.run.preflight import check, require_packages
from tirjudge_training.stages.base import DONE, Run, Say, Stage
from tirjudge_training.stages.reinforcement import Reinforcement

RESULTS = "results.md"
ROWS = "rows.json"
"""The file of a run folder with the number of training rows per judge, and of rows that were left out."""


def data_of(recipe: Recipe) -> Data:
    """Open the data of a recipe; raises BadRecipe for unusable judges or rows, OSError for missing files."""
    try:
        require_rows(recipe.data)
        encoder = None if recipe.data.max_prompt_tokens is None else _encoder(recipe)
        return RowData(recipe.data, recipe.environments, encoder=encoder)
    except ValueError as error:
        raise BadRecipe(str(error)) from None


def _encoder(recipe: Recipe) -> ChatEncoder:
    """Return the encoder of the base model's prompts; raises BadRecipe if its chat template is unusable."""
    base = recipe.model.base
    with model_errors(base):
        tokenizer = model_folder.load_tokenizer(base)
    try:
        return ChatEncoder(tokenizer, enable_thinking=_enable_thinking(recipe))
    except ValueError as error:
        raise BadRecipe(f"model.base: {base}: {error}") from None


def counted(recipe: Recipe, data: Data) -> Recipe:
    """Return the recipe with `rl.epochs` converted to `rl.rows` and the most `rl.steps` for them.

    A warm-up on the demonstrations among the training rows is taken out if there are none.
    """
    if recipe.data.demonstrations == TRAIN and not demonstrated(data, 1, recipe.seed):
        without = recipe.data.model_copy(update={"demonstrations": None})
        recipe = recipe.model_copy(update={"data": without})
    if recipe.rl.epochs is None:
        return recipe
    steps, rows = data.steps(recipe.rl.groups, recipe.rl.epochs)
    rl = recipe.rl.model_copy(update={"steps": steps, "epochs": None, "rows": rows})
    return recipe.model_copy(update={"rl": rl})


def with_dtype(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with the type of the weights that `model.dtype = "auto"` stands for in this folder.

    A run that another machine began goes on with the type that it began with. Where nothing is stated, an
    adapter on a GPU has `auto`.
    """
    adapted, stated = recipe.model.lora is not None, recipe.model.dtype
    if stated != "auto" and (stated or not adapted or current_device().device == "cpu"):
        return recipe
    config = folder / CONFIG
    begun = tomllib.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    dtype = begun.get("model", {}).get("dtype")
    if dtype is None:
        # Rounded weights lose small updates, unless an adapter takes them.
        dtype = weights_dtype("auto") if adapted else "float32"
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"dtype": dtype})})


def train(
    recipe: Recipe,
    folder: Path,
    *,
    say: Say = log,
    processes: Processes = ALONE,
) -> Path:
    """Run a recipe in `folder`, or resume it there; returns the folder of the trained model.

    Finished stages are not repeated, and an interrupted stage is resumed. `say` receives lines of progress.
    With several `processes`, each process makes this call; the first one logs, and writes all files but the
    rows and shards of the others. Raises BadRecipe, OtherSettings for the folder of another recipe, Locked
    while another run is using it, TooSmall, ReporterMissing, and OtherTrainer for an RL stage of verl's.
    """
    processes.first(lambda: require_packages(recipe))  # before a model is converted
    recipe = with_dtype(recipe, folder)
    # All of this happens before the folder is touched: a recipe that cannot run leaves nothing behind.
    processes.first(lambda: require_model(recipe.model.start))
    data = data_of(recipe)
    pipeline = pipeline_of(counted(recipe, data))
    processes.first(lambda: _hand_over(pipeline, folder))
    processes.first(lambda: check(recipe, pipeline, data, folder))
    processes.first(lambda: _check_template(recipe, pipeline, data))
    with disk_full_errors(folder), processes.folder(folder) as run_folder:
        processes.first(lambda: claim(run_folder, recipe))
        say = say if processes.rank == 0 else (lambda line: None)
        run = context(recipe, data, folder, say, processes)
        if isinstance(data, RowData):
            counts = data.counts()
            run_folder.write(ROWS, json.dumps(counts, indent=2) + "\n")
            say(f"{_rows_line(counts, recipe.data.max_prompt_tokens)}; {data.split}")
        # In order: each stage may use the models and samples of those before it.
        of = len(pipeline.stages)
        left = processes.first(
            lambda: [one.name for one in pipeline.stages if not (folder / one.name / DONE).exists()]
        )
        results = {
            stage.name: _done(stage, run, f"stage {number} of {of}")
            for number, stage in enumerate(pipeline.stages, 1)
        }
        if pipeline.models:
            run_folder.write(RESULTS, table(pipeline, results))
            if left:
                processes.first(lambda: _say_gain(pipeline, folder, say))
        return Path(run.model(pipeline.result))


def table(pipeline: Pipeline, results: Mapping[str, Any]) -> str:
    """Return Markdown: one row per measured model, one column per judge, with 95 % intervals."""
    rows = {name: results[HELDOUT + name] for name in pipeline.models}
    judges = list(next(iter(rows.values()), {}))
    cells = (
        [name, *(percentage(found[judge]["accuracy"]) for judge in judges)] for name, found in rows.items()
    )
    return "\n".join(markdown_table(["model", *judges], cells)) + "\n"


def _say_gain(pipeline: Pipeline, folder: Path, say: Say) -> None:
    """Say whether the result is right more often than the first measured model, about the same tasks."""
    names = list(pipeline.models)
    first = names[0]
    # Controls are measured after the result; a method of another package may not measure its result.
    last = next((name for name in names if pipeline.models[name] == pipeline.result), names[-1])
    before, after = (
        {row["index"]: row["correct"] for row in read_lines(folder / f"{HELDOUT}{name}" / ANSWERS)}
        for name in (first, last)
    )
    # A task whose sandbox or sampler failed says nothing.
    pairs = [(before[i], after[i]) for i in before if None not in (before[i], after.get(i))]
    if first == last or not pairs:
        return
    gained, lost = pairs.count((False, True)), pairs.count((True, False))
    change, (low, high) = paired_difference(gained, lost, len(pairs))
    was, became = (sum(right) for right in zip(*pairs, strict=True))
    say(
        f"right in {len(pairs)} held-out tasks: {first} {was}, {last} {became}; "
        f"{100 * change:+.1f} points [{100 * low:.1f}, {100 * high:.1f}]"
    )


def context(recipe: Recipe, data: Data, folder: Path, say: Say, processes: Processes = ALONE) -> Run:
    """Return what the stages of a run share."""
    return Run(
        folder,
        recipe.model.start,
        data,
        say,
        recipe.meta_judge,
        processes,
        enable_thinking=_enable_thinking(recipe),
        dtype=weights_dtype(recipe.model.dtype),
        kernels=Kernels(recipe.model.attn_implementation, recipe.model.liger),
        note=_note(recipe, data),
    )


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
    encoder = _encoder(recipe)
    if not any(stage.asks_teacher for stage in pipeline.stages):
        return
    for one in {task.format: task for task in data.prompts(None, recipe.seed)}.values():
        judge = data.environments[one.format]
        prompt = judge.prompt(one.task, judge.views(one.task)[0])
        if encoder.opening(prompt).startswith(THINK) and not prompt.prefill.startswith(THINK):
            raise BadRecipe(
                f"method: the chat template of {recipe.model.base} opens {THINK}, and the dialogues of a "
                "teacher have no reasoning to close: set model.enable_thinking=false, or distil into another "
                "model"
            )


def _enable_thinking(recipe: Recipe) -> bool | None:
    """Return the thinking mode of a run: the recipe's, else the one its base model was trained with."""
    stated, base = recipe.model.enable_thinking, recipe.model.start
    return read_note(base).enable_thinking if stated is None else stated


def _note(recipe: Recipe, data: Data) -> dict[str, Any]:
    """Return the fields of the note that a model folder of this run gets: the prompts of its training.

    The token budget of the held-out measurement is noted too if the recipe sets one.
    """
    judges = [judge for judge in data.environments.values() if isinstance(judge, TirFormat)]
    note: dict[str, Any] = {
        "enable_thinking": _enable_thinking(recipe),
        "max_tokens": recipe.heldout.max_tokens,
        "formats": _formats(recipe, data),
    }
    for name in ("prompts", "shown_chars"):
        values = {getattr(judge, name, None) for judge in judges}
        note |= {name: values.pop()} if len(values) == 1 else {}
    tools = recipe.rl.tools.servers
    return note | ({"tools": tools} if tools else {})


_NOT_NOTED = {"order", "seed", "further_tools", "per_criterion"}
"""Options of formats that a note leaves out besides those of the reward: the order of a row's responses,
which the judge does not see, the tools besides Python, which the note has apart, and what a run asks for."""


def _formats(recipe: Recipe, data: Data) -> dict[str, dict[str, Any]]:
    """Return all options of each format that this run trains, without those in which its judges differ."""
    judges = recipe.environments or JUDGES
    formats: dict[str, dict[str, Any]] = {}
    for name, judge in data.environments.items():
        if isinstance(judge, BaseModel):
            options = judge.model_dump(mode="json", exclude=_NOT_NOTED | reward_options(judge))
            format = (judges.get(name) or judges[name.removesuffix(WITHOUT_TOOLS)]).name
            known = formats.setdefault(format, options)
            formats[format] = {key: value for key, value in known.items() if options.get(key) == value}
    return formats


def _rows_line(counts: Mapping[str, Mapping[str, int]], limit: int | None) -> str:
    """Return one line about the training rows and about those that `data.max_prompt_tokens` leaves out."""
    rows, too_long = (sum(one[key] for one in counts.values()) for key in ("rows", "too_long"))
    line = f"{rows:,} training rows"
    if limit is None:
        return f"{line}; data.max_prompt_tokens is not set, so prompts may be of any length"
    by_judge = ", ".join(f"{one['too_long']:,} of {name}" for name, one in counts.items() if one["too_long"])
    parts = f" ({by_judge})" if by_judge else ""
    left_out = f"{too_long:,} with a prompt of more than data.max_prompt_tokens = {limit:,} are left out"
    return f"{line}; {left_out}{parts}"


def claim(folder: RunFolder, recipe: Recipe) -> None:
    """Store the resolved recipe in a run folder; raises OtherSettings if the folder holds another run."""
    claim_folder(folder, recipe)


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
    return processes.first(lambda: json.loads((path / DONE).read_text(encoding="utf-8")))


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
