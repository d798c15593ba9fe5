"""`tirjudge judge`: from a command line to a run over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tirjudge.cli.batch_run import BatchRun
from tirjudge.cli.judge_options import JudgeOptions, taking
from tirjudge.cli.one_line import SOME_FAILED, one_line_errors
from tirjudge.cli.output_file import output_file
from tirjudge.data.sources import open_rows
from tirjudge_environments.tasks import Columns


@taking
def judge(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows: JSON lines, JSON, CSV, Parquet; a hub id OWNER/NAME; - is standard input.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="Result file; by default NAME.verdicts.jsonl in this folder.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="PART=COLUMN", help="Where rows hold a part: prompt=instruction+input."),
    ] = None,
    labels: Annotated[str, typer.Option(help="What label values mean: 1=A,2=B,0=tie.")] = "",
    input_format: Annotated[
        Literal["jsonl", "json", "csv", "tsv", "parquet"] | None,
        typer.Option(help="Instead of telling by the file."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="Of a hub data set that has several.")] = None,
    split: Annotated[str | None, typer.Option(help="Of a hub data set that has several.")] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep completions, and ask nothing twice.")
    ] = False,
    *,
    options: JudgeOptions,
) -> None:
    """Judge a file of rows. The same command goes on where a stopped one was.

    Exit codes: 0 all rows judged, 1 some failed, 2 usage, 130 interrupted.
    """
    with one_line_errors("judge"):
        run = BatchRun(
            command="judge",
            config=options.config(),
            plan=options.plan(Columns.parse(column or ()), _label_values(labels)),
            price=options.price(),
            max_cost=options.max_cost,
            cache=cache,
            overwrite=options.overwrite,
            output=output_file(output, file, "verdicts"),
            rows=open_rows(file, input_format, config, split),
        )
        raise typer.Exit(0 if run.run() else SOME_FAILED)


def _label_values(text: str) -> dict[str, str] | None:
    if not text:
        return None
    pairs = [pair.split("=") for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"--labels {text!r}: write VALUE=LETTER,VALUE=LETTER,VALUE=tie")
    return {value.strip(): letter.strip() for value, letter in pairs}
