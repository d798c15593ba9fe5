"""`tirjudge bon`: from a command line to best-of-N over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tirjudge.best_of_n.methods import METHODS, open_method
from tirjudge.cli.bon_run import BonRun
from tirjudge.cli.judge_options import JudgeOptions, taking
from tirjudge.cli.one_line import SOME_FAILED, one_line_errors
from tirjudge.cli.output_file import output_file
from tirjudge.data.sources import open_rows
from tirjudge_environments.tasks import Columns

DEFAULT_METHODS = ("pointwise", "pairwise", "listwise")


@taking
def bon(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows with candidates, ours or JETTS's; a hub id OWNER/NAME; - is standard input.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="File of judgments; by default NAME.bon.jsonl in this folder.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(METHODS)}; as often as needed. Default: the first three."),
    ] = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", help="Only pass@1, majority vote and the oracle.")
    ] = False,
    group_size: Annotated[int, typer.Option(min=2, help="Of listwise: candidates in one prompt.")] = 4,
    check: Annotated[
        Literal["auto", "instructions", "tests", "math", "recorded"],
        typer.Option(help="What tells which candidates solve a row. Default: what the row has."),
    ] = "auto",
    n: Annotated[int | None, typer.Option(min=1, help="Only the first N candidates of each row.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar="PART=COLUMN", help="Where rows hold a part.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="Of a hub data set that has several.")] = None,
    split: Annotated[str | None, typer.Option(help="Of a hub data set that has several.")] = None,
    *,
    options: JudgeOptions,
) -> None:
    """Have a judge select one of N candidates. The same command goes on where a stopped one was.

    --pointwise, --pairwise and --listwise are methods too. Exit codes: 0 all rows done, 1 some failed, 2
    usage, 130 interrupted.
    """
    with one_line_errors("bon"):
        named = [*(method or ()), *(name for name in DEFAULT_METHODS if getattr(options, name))]
        if no_judge and named:
            raise ValueError("--no-judge and a method exclude each other")
        names = () if no_judge else dict.fromkeys(named or DEFAULT_METHODS)
        run = BonRun(
            rows=open_rows(file, config=config, split=split),
            output=output_file(output, file, "bon"),
            config=options.config(),
            methods={name: open_method(name, group_size=group_size, seed=options.seed) for name in names},
            check=check,
            columns=Columns.parse(column or ()),
            most=n,
            limit=options.limit,
            truncate=options.truncate,
            give_up_after=options.give_up_after,
            price=options.price(),
            max_cost=options.max_cost,
            overwrite=options.overwrite,
        )
        raise typer.Exit(0 if run.run() else SOME_FAILED)
