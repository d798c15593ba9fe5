"""`tirjudge export`: result files as logs of Inspect, as Parquet and as CSV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.errors import STANDARD_OUTPUT, one_line_errors, say
from tirjudge.cli.help import ExampleGroup, add_command, example_lines, examples
from tirjudge.console_text import printable
from tirjudge.export.flat_rows import stream_csv, write_csv, write_parquet
from tirjudge.export.inspect_log import write_inspect_log
from tirjudge.judging.result_rows import is_truncated

export = typer.Typer(
    cls=ExampleGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog=example_lines(
        "tirjudge export inspect rows.verdicts.jsonl -o logs && inspect view --log-dir logs",
        "tirjudge export parquet rows.verdicts.jsonl",
    ),
)

_Results = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="Result file of judge, eval or bon.", show_default=False)
]


@export.callback()
def root() -> None:
    """Write result files in the formats of other programs."""


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
            _warn_of_truncation(file, "inspect")
            print(printable(str(write_inspect_log(file, output))))


@examples("tirjudge export parquet rows.verdicts.jsonl", "tirjudge export parquet a.jsonl -o a.parquet")
def parquet(
    file: _Results,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Parquet file.  [default: NAME.parquet in this folder]",
            rich_help_panel="Output",
        ),
    ] = None,
) -> None:
    """Write a result file as Parquet, one line per row; lists and dialogues are JSON texts.

    Needs the extra `data`. Exit codes: 0 written, 2 usage.
    """
    with one_line_errors("export parquet"):
        if output == STANDARD_OUTPUT:
            raise ValueError("--output -: Parquet is written to a file; export csv writes to standard output")
        place = _place(output, file, "parquet")
        _warn_of_truncation(file, "parquet")
        print(f"{printable(str(place))}: {write_parquet(file, place)} rows")


@examples("tirjudge export csv rows.verdicts.jsonl", "tirjudge export csv rows.verdicts.jsonl -o - | head")
def csv(
    file: _Results,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="CSV file; - is standard output.  [default: NAME.csv in this folder]",
            rich_help_panel="Output",
        ),
    ] = None,
) -> None:
    """Write a result file as CSV, one line per row; lists and dialogues are JSON texts.

    Exit codes: 0 written, 2 usage.
    """
    with one_line_errors("export csv"):
        _warn_of_truncation(file, "csv")
        if output == STANDARD_OUTPUT:
            stream_csv(file, sys.stdout)
            return
        place = _place(output, file, "csv")
        print(f"{printable(str(place))}: {write_csv(file, place)} rows")


def _place(given: Path | None, results: Path, suffix: str) -> Path:
    """Return the file to write. Raises ValueError if it is the result file itself, OSError without one."""
    results.stat()
    place = given or Path(f"{results.stem}.{suffix}")
    if place.exists() and place.samefile(results):
        raise ValueError(f"{place} is the input: choose another --output")
    return place


def _warn_of_truncation(file: Path, command: str) -> None:
    if is_truncated(file):
        say(f"tirjudge export {command}: {file} ends in the middle of a row, which is left out")


for _command in (inspect, parquet, csv):
    add_command(export, _command)
