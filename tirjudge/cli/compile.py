"""`tirjudge compile`, which turns the rules of rows into checkers, and measures them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.options import RowsOptions, takes_options
from tirjudge.cli.output import SOME_FAILED, examples, no_sandbox, option, say
from tirjudge.compilation.compiler import Compilation, measured_text, ruled_row
from tirjudge.compilation.examples import RuledRow
from tirjudge.compilation.options import CompileOptions, compiled, rules_of_file
from tirjudge.console_text import printable
from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments.checkers.file import CheckerFile
from tirjudge_environments.checkers.runner import CheckersDown
from tirjudge_environments.tasks import RowError
from tirjudge_sandbox import SandboxUnavailable

_SHOWN = 5
"""Unreadable rows that are named."""


@examples(
    "tirjudge compile rows.verdicts.jsonl -o checkers.toml",
    "tirjudge compile labels.jsonl -o checkers.toml --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge compile labels.jsonl --measure checkers.toml",
)
@takes_options("compile")
def compile(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Result files of tirjudge judge, and files of rows as for tirjudge judge."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file of checkers.  [default: checkers.toml, or that of --measure]",
            rich_help_panel="Output",
        ),
    ] = None,
    measure: Annotated[
        Path | None,
        option("Compiling", "Measure the checkers of this file, and write no new ones.", metavar="FILE"),
    ] = None,
    rules: Annotated[
        Path | None, option("Compiling", "Rules of rows without criteria, one in each line.", metavar="FILE")
    ] = None,
    overwrite: Annotated[bool, option("Output", "Replace an existing file.", "--overwrite")] = False,
    as_json: Annotated[bool, option("Output", "Print the summary as JSON.", "--json")] = False,
    *,
    reading: RowsOptions,
    options: CompileOptions,
) -> None:
    """Compile the rules of rows into checkers, which decide them without a model.

    Candidates are split from the programs of result files, and written by --model, here or at --base-url.
    Each is measured on prompts that it was not chosen on, with people's labels or the judge's decided
    verdicts.
    Exit codes: 0 at least one checker is admitted, 1 none is, 2 usage or no rows, 125 no sandbox.
    """
    target = output or measure or Path("checkers.toml")
    rows_file = target.with_name(f"{target.stem}.rows.jsonl")
    for path in (target, *([rows_file] if options.model else [])):
        if path.exists() and path != measure and not overwrite:
            raise ValueError(f"{path} exists: choose another --output, or give --overwrite")
    if measure is not None and (options.model or options.base_url):
        raise ValueError("--measure writes no checkers: leave out --model and --base-url")
    file = CheckerFile.read(measure) if measure is not None else None
    listed = _rules(rules) if rules is not None else rules_of_file((), file)
    columns, meaning = reading.columns, reading.meaning
    rows = list[RuledRow]()
    for name in files:
        source, bad = reading.open(name), 0
        if target.exists() and source.is_at(target):
            raise ValueError(f"{target} is the input: choose another --output")
        for row in source:
            try:
                rows.append(ruled_row(row, columns, meaning, listed))
            except RowError as error:
                bad += 1
                if bad <= _SHOWN:
                    say(f"{row.where}: {error}")
        if bad > _SHOWN:
            say(f"{printable(name)}: {bad - _SHOWN} further rows cannot be read")
    options.check(rows)
    try:
        found = asyncio.run(compiled(rows, options, file))
    except SandboxUnavailable as error:
        no_sandbox("compile", error)
    except CheckersDown as error:
        raise ValueError(f"the sandbox failed: {error}") from None
    found.file = found.file.model_copy(update={"rules": listed})
    # A person's comments stay, and the order of the keys.
    text = measured_text(measure.read_text(encoding="utf-8"), found.file) if measure else found.file.text()
    write_atomically(target, text)
    if found.rows:
        write_atomically(rows_file, "".join(json.dumps(row) + "\n" for row in found.rows))
        say(f"the rules that the model listed are in {printable(str(rows_file))}, by the ids of the rows")
    _print(found, target, as_json)
    raise typer.Exit(0 if found.file.admitted else SOME_FAILED)


def _rules(path: Path) -> tuple[str, ...]:
    """Return the rules of a file; raises ValueError for a file without any, with too many or a long rule."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"--rules {path}: the file has no rule")
    try:
        return rules_of_file(list(dict.fromkeys(lines)))
    except ValueError as error:
        raise ValueError(f"--rules {path}: {error}") from None


def _print(found: Compilation, target: Path, as_json: bool) -> None:
    if as_json:
        record: dict[str, Any] = {
            "file": str(target),
            "rules": found.rules,
            "candidates": found.candidates,
            "prompts": found.prompts,
            "chosen_on": found.chosen_on,
            "without_candidate": found.without,
            "unwritten": found.unwritten,
            "checkers": [one.model_dump(exclude={"source"}) for one in found.file.checkers],
        }
        print(json.dumps(record, indent=2))
        return
    for heading, line in found.lines():
        print(f"{heading:<10}{printable(line)}")
    print(f"{'written':<10}{printable(str(target))}")
