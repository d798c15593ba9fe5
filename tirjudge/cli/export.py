"""`tirjudge export`: result files as logs of Inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.output import add_command, example_lines, examples, one_line_errors, say
from tirjudge.console_text import printable
from tirjudge.export.inspect_log import write_inspect_log
from tirjudge.judging.result_rows import is_truncated

export = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog=example_lines(
        "tirjudge export inspect rows.verdicts.jsonl -o logs && inspect view --log-dir logs",
    ),
)


@export.callback()
def root() -> None:
    """Write result files as logs of Inspect."""


@examples("tirjudge export inspect rows.verdicts.jsonl -o logs && inspect view --log-dir logs")
def inspect(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS...", help="Result files of judge, eval or bon.", show_default=False),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder of logs.", rich_help_panel="Output"),
    ] = Path("logs"),
) -> None:
    """Write each result file as a log that `inspect view` opens; needs the extra `inspect`.

    A row is a sample: the dialogues are its messages and events, every program is a tool call, and the
    verdict is its score. Prints the path of each log. Exit codes: 0 written, 2 usage.
    """
    with one_line_errors("export inspect"):
        for file in files:
            if is_truncated(file):
                say(f"tirjudge export inspect: {file} ends in the middle of a row, which is left out")
            print(printable(str(write_inspect_log(file, output))))


add_command(export, inspect)
