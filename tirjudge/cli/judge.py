"""`tirjudge judge`, which judges a file of rows, and `tirjudge formats`, which lists the judge formats."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from tirjudge.cli.batch_run import BatchRun
from tirjudge.cli.options import (
    ColumnOption,
    LabelsOption,
    RunnerOptions,
    SplitOption,
    SubsetOption,
    label_values,
    takes_options,
)
from tirjudge.cli.output import SOME_FAILED, examples, output_file, refuse_input, say
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.data.sources import open_rows
from tirjudge.judging.config import JudgeOptions
from tirjudge_environments import JudgeCard
from tirjudge_environments.registry import environment_names, environment_options, judge_cards, judge_table
from tirjudge_environments.tasks import Columns

_BUILT_IN = "tirjudge_environments."


class JudgeRowOptions(RunnerOptions, JudgeOptions):
    """The options of `tirjudge judge`."""


@examples(
    "tirjudge judge examples/instructions.jsonl",
    "tirjudge judge --pairwise rows.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
)
@takes_options("judge")
def judge(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows: JSON lines, JSON, CSV, Parquet; a quoted pattern of files; a hub id OWNER/NAME; "
            "- is standard input.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Result file; - is standard output.  [default: NAME.verdicts.jsonl in this folder]",
            rich_help_panel="Output",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the summary as JSON.", rich_help_panel="Output"),
    ] = False,
    column: ColumnOption = None,
    labels: LabelsOption = "",
    input_format: Annotated[
        Literal["jsonl", "json", "csv", "parquet"] | None,
        typer.Option(help="File format.  [default: detected from the file]", rich_help_panel="Rows"),
    ] = None,
    subset: SubsetOption = None,
    split: SplitOption = None,
    *,
    options: JudgeRowOptions,
) -> None:
    """Judge a file of rows. The same command resumes an interrupted run.

    Exit codes: 0 all rows judged, 1 some failed or none got a verdict, 2 usage or no rows, 130 interrupted.
    A verdict that is left open is a result.
    """
    abstention = options.abstention()
    plan = options.plan(Columns.parse(column or ()), label_values(labels))
    target = output_file(output, file, "verdicts", streamed=True)
    rows = InspectedRows(open_rows(file, input_format, subset, split), plan.columns, plan.labels)
    refuse_input(target, rows)
    for note in rows.inspect():
        say(note)
    run = BatchRun(
        command="judge",
        options=options,
        plan=plan,
        output=target,
        rows=rows,
        settings={} if abstention is None else {"abstention": asdict(abstention)},
        abstention=abstention,
        as_json=as_json,
    )
    judged = run.run()
    for note in rows.left():
        say(note)
    raise typer.Exit(0 if judged else SOME_FAILED)


@examples("tirjudge formats", "tirjudge formats --markdown")
def formats(
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print the built-in formats as the table of docs/judges.md.",
            rich_help_panel="Output",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the formats as JSON.", rich_help_panel="Output")
    ] = False,
) -> None:
    """List the judge formats that `--format` accepts."""
    if markdown:
        print(judge_table(_BUILT_IN))
        return
    cards = judge_cards()
    if as_json:
        found = {name: {"options": sorted(environment_options(name))} for name in environment_names()}
        print(json.dumps({name: {**one, **_card(cards.get(name))} for name, one in found.items()}, indent=2))
        return
    for name in environment_names():
        about = {"options": ", ".join(sorted(environment_options(name)))}
        if name in cards:
            about |= _card(cards[name])
        print(printable(name))
        for heading in ("sees", "answers", "reward", "from", "options"):
            if about.get(heading):
                print(f"  {heading:<9}{printable(about[heading].replace('`', ''))}")


def _card(card: JudgeCard | None) -> dict[str, str]:
    if card is None:
        return {}
    return {"sees": card.views, "answers": card.answer, "reward": card.reward, "from": card.source}
