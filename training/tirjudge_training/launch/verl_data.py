"""The rows of an RL stage as verl reads them: Parquet files, and the judges of the rows as agent loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tirjudge_environments.adapters.dialogues import TASK_COLUMN, VIEW_COLUMN, write_task
from tirjudge_environments.adapters.settings import JudgeSettings
from tirjudge_environments.boundary import shown_prompt
from tirjudge_environments.tokenization import without_surrogates
from tirjudge_training.data.base import WITHOUT_TOOLS, Data
from tirjudge_training.data.own_rows import JUDGES
from tirjudge_training.launch.verl_config import Rows
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import RowStream
from tirjudge_training.stages.reinforcement import Reinforcement

AGENT_LOOP = "tirjudge_environments.adapters.verl.JudgeLoop"
_CHUNK = 1000
"""Rows that are converted at once, since a whole corpus need not fit into memory twice."""


def training_tasks(
    data: Data, stage: Reinforcement, chosen: frozenset[str] | None = None
) -> Iterator[FormattedTask]:
    """Yield the tasks of all passes of a stage, in the order in which our own trainer draws them.

    `chosen` are the ids of the only tasks that the stage draws from; None means all tasks.
    """
    config = stage.config
    source = data.source(stage.seed, config.rows, chosen)
    assert isinstance(source, RowStream)  # generated tasks are refused before
    # Without epochs there is one task per group at most; replacements start the file again.
    for position in range(config.rows or config.steps * config.groups):
        if (task := source(position)) is None:
            return
        yield task


def verl_rows(data: Data, tasks: Iterable[FormattedTask]) -> Iterator[dict[str, Any]]:
    """Yield verl's rows: one per view of a task, or one per task if the judge links its views."""
    for number, formatted in enumerate(tasks):
        judge, task = data.environments[formatted.format], formatted.task
        views = judge.views(task)
        for view in views[:1] if judge.linked else views:
            messages = shown_prompt(judge, task, view).messages
            yield {
                "data_source": formatted.format,
                "agent_name": formatted.format,
                # Our agent loop makes the prompt itself; verl requires and logs this column.
                "prompt": [
                    {"role": message.role, "content": without_surrogates(message.content)}
                    for message in messages
                ],
                "reward_model": {"style": "rule", "ground_truth": str(task.label)},
                "extra_info": {"index": number, TASK_COLUMN: write_task(task), VIEW_COLUMN: view.name},
            }


def rows_of(data: Data, tasks: Iterable[FormattedTask]) -> Rows:
    """Return how many of verl's rows the tasks make, and their groups; a group is a view of a task."""
    rows = groups = most = 0
    for formatted in tasks:
        judge = data.environments[formatted.format]
        views = len(judge.views(formatted.task))
        rows += 1 if judge.linked else views
        groups += views
        most = max(most, views if judge.linked else 1)
    return Rows(rows, groups / rows, most)


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a Parquet file, which appears when it is complete."""
    import pyarrow
    import pyarrow.parquet

    partial, writer = path.with_name(f".{path.name}.new"), None
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        table = pyarrow.Table.from_pylist(chunk)
        writer = writer or pyarrow.parquet.ParquetWriter(partial, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
        partial.replace(path)


def agent_loops(recipe: Recipe, stage: Reinforcement, data: Data) -> list[dict[str, Any]]:
    """Return the agent loops by name, one per judge, as verl's `agent_loop_config_path` takes them."""
    config, judges = stage.config, recipe.environments or JUDGES
    loops = []
    for name in data.environments:
        without = {} if name in judges else {"tools": False}
        judge = judges[name if name in judges else name.removesuffix(WITHOUT_TOOLS)]
        settings = JudgeSettings(
            judge=judge.name,
            options={**judge.options, **without},
            sandbox=config.sandbox,
            tool_calls=config.tool_calls,
            turns=config.turns,
            tokens=config.max_tokens,
            cpu_seconds=config.cpu_seconds,
            program_cpu_seconds=config.program_cpu_seconds,
            tools=config.tools,
            seed=stage.seed,
        )
        values = settings.model_dump(mode="json", exclude={"columns"})
        loops.append({"name": name, "_target_": AGENT_LOOP, "settings": values})
    return loops
