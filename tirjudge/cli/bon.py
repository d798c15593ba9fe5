"""`tirjudge bon`: best-of-N selection over rows, by a judge or without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tirjudge.cli.bon_run import BonRun
from tirjudge.cli.options import (
    ColumnOption,
    LabelsOption,
    RowOptions,
    SplitOption,
    SubsetOption,
    label_values,
    takes_options,
)
from tirjudge.cli.output import SOME_FAILED, examples, output_file, refuse_input, say
from tirjudge.data.inspection import InspectedRows
from tirjudge.data.sources import open_rows
from tirjudge.selection.best_of_n import open_method
from tirjudge.selection.grading import unpacked
from tirjudge.selection.tournaments import BEST_OF_N
from tirjudge_environments.tasks import Columns

DEFAULT_METHODS = ("pointwise", "pairwise", "listwise")


@examples(
    "tirjudge bon candidates.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge bon candidates.jsonl --no-judge --n 8",
)
@takes_options("bon")
def bon(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows with candidates, in our columns or JETTS's; a hub id OWNER/NAME; - is standard input.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="File of judgments.  [default: NAME.bon.jsonl in this folder]", rich_help_panel="Output"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel="Output")
    ] = False,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help=f"Selection method: {', '.join(BEST_OF_N)}. Repeatable.  [default: the first three]",
            rich_help_panel="Judging",
        ),
    ] = None,
    no_judge: Annotated[
        bool,
        typer.Option(
            "--no-judge",
            help="Open no judge: report only pass@1, majority vote and the oracle.",
            rich_help_panel="Judging",
        ),
    ] = False,
    group_size: Annotated[
        int,
        typer.Option(min=2, help="Candidates in one listwise prompt.", rich_help_panel="Judging"),
    ] = 4,
    check: Annotated[
        Literal["auto", "instructions", "tests", "math", "recorded", "label", "none"],
        typer.Option(
            help="Check that decides which candidates solve a row; auto: by the row's columns, else none.",
            rich_help_panel="Rows",
        ),
    ] = "auto",
    n: Annotated[
        int | None,
        typer.Option(min=1, help="Use only the first N candidates of each row.", rich_help_panel="Rows"),
    ] = None,
    column: ColumnOption = None,
    labels: LabelsOption = "",
    subset: SubsetOption = None,
    split: SplitOption = None,
    *,
    options: RowOptions,
) -> None:
    """Let a judge select the best of N candidates. The same command resumes an interrupted run.

    Selecting needs no labels. Rows with a label, or another column to check by, also score the selection.
    --pointwise, --pairwise and --listwise are short for --method. Exit codes: 0 all rows done, 1 some
    failed, 2 usage, 130 interrupted.
    """
    named = [*(method or ()), *(name for name in DEFAULT_METHODS if getattr(options, name))]
    if no_judge and named:
        raise ValueError("--no-judge and a method exclude each other")
    names = () if no_judge else dict.fromkeys(named or DEFAULT_METHODS)
    columns, meaning, target = (
        Columns.parse(column or ()),
        label_values(labels),
        output_file(output, file, "bon"),
    )
    # Several candidates often are identical, and any of them is as good.
    rows = InspectedRows(
        open_rows(file, config=subset, split=split), columns, meaning, unpack=unpacked, alike=False
    )
    refuse_input(target, rows)
    for note in rows.inspect():
        say(note)
    run = BonRun(
        rows=rows,
        output=target,
        options=options,
        methods={name: open_method(name, group_size=group_size, seed=options.seed) for name in names},
        check=check,
        columns=columns,
        labels=meaning,
        most=n,
        as_json=as_json,
    )
    done = run.run()
    for note in rows.left():
        say(note)
    raise typer.Exit(0 if done else SOME_FAILED)
