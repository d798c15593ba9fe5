"""`tirjudge ifeval`: check responses against verifiable instructions, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.errors import SOME_FAILED, one_line_errors, output_file, refuse_empty, refuse_input
from tirjudge.cli.help import examples
from tirjudge.cli.progress import say_failure
from tirjudge.console_text import printable
from tirjudge.data.sources import RowSource, open_rows
from tirjudge.evaluation.instruction_following import (
    CheckedResponse,
    FollowingTally,
    check,
    instructions_by_prompt,
)
from tirjudge.judging.batch import Failure
from tirjudge.statistics import Proportion
from tirjudge.storage.run_folder import JsonLines
from tirjudge_environments.instruction_checks import verifier_names
from tirjudge_environments.tasks import Columns


@examples(
    "tirjudge ifeval responses.jsonl --prompts input_data.jsonl",
    "tirjudge ifeval --names",
)
def ifeval(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Rows with a prompt and a response; - is standard input.")
    ] = "",
    prompts: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Rows with the instructions of each prompt.", rich_help_panel="Rows"
        ),
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=COLUMN",
            help="Column that holds a part of a row, such as response=answer. Repeatable.",
            rich_help_panel="Rows",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Also write one JSON line per response.", rich_help_panel="Output")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON.", rich_help_panel="Output")
    ] = False,
    names: Annotated[
        bool,
        typer.Option("--names", help="List the instructions that can be checked.", rich_help_panel="Output"),
    ] = False,
) -> None:
    """Count the instructions that responses follow, as IFEval does.

    The numbers are IFEval's strict and loose accuracy. Instructions are in IFEval's columns
    (instruction_id_list, kwargs) of the rows or of --prompts. Exit codes: 0 all rows checked, 1 some failed,
    2 usage.
    """
    with one_line_errors("ifeval"):
        if names:
            print(json.dumps(list(verifier_names())) if as_json else "\n".join(verifier_names()))
            return
        if not file:
            raise ValueError("give a FILE of responses (--names lists the instructions)")
        rows = open_rows(file)
        if output is None:
            refuse_empty(rows)
        else:
            refuse_input(output_file(output, file, "checked"), rows)
        failed = _check(rows, prompts, Columns.parse(column or ()), output, as_json=as_json)
        raise typer.Exit(SOME_FAILED if failed else 0)


def _check(rows: RowSource, prompts: str, columns: Columns, output: Path | None, *, as_json: bool) -> int:
    """Print the table; return the number of failed rows."""
    instructions = instructions_by_prompt(open_rows(prompts)) if prompts else {}
    tally, failed = FollowingTally(), 0
    lines = JsonLines(output, truncate=True) if output is not None else None
    try:
        for one in check(rows, instructions, columns):
            if isinstance(one, Failure):
                failed += 1
                say_failure(one, failed)
                continue
            tally.add(one)
            if lines is not None:
                lines.append(_record(one))
    finally:
        if lines is not None:
            lines.close()
    if as_json:
        print(json.dumps(_totals(tally, failed), indent=2))
    else:
        _print(tally, failed)
    return failed


def _record(checked: CheckedResponse) -> dict[str, object]:
    strict, loose = checked.followed.strict, checked.followed.loose
    return {
        "id": checked.id,
        "instruction_id_list": list(checked.names),
        "strict": list(strict),
        "loose": list(loose),
        "follows_all_strict": all(strict),
        "follows_all_loose": all(loose),
    }


def _totals(tally: FollowingTally, failed: int) -> dict[str, object]:
    """Return the numbers as JSON values: rates are shares from 0 to 1."""

    def rates(name: str | None = None) -> dict[str, object]:
        strict, loose = (tally.instructions(way, name) for way in ("strict", "loose"))
        return {"n": strict.n, "strict": strict.rate, "loose": loose.rate}

    strict, loose = tally.prompts("strict"), tally.prompts("loose")
    return {
        "failed": failed,
        "prompts": {"n": strict.n, "strict": strict.rate, "loose": loose.rate},
        "instructions": rates(),
        "by_instruction": {name: rates(name) for name in tally.names},
    }


def _print(tally: FollowingTally, failed: int) -> None:
    """Print plain lines, which programs can read too."""
    total = tally.prompts("strict").n
    print(f"checked   {total} responses, {tally.instructions('strict').n} instructions, {failed} rows failed")
    print(f"{'':<56}{'strict':<29}loose")
    print(_line("prompts, all instructions followed", tally.prompts("strict"), tally.prompts("loose")))
    print(_line("instructions", tally.instructions("strict"), tally.instructions("loose")))
    for name in tally.names:
        shown = printable(f"  {name}, n = {tally.instructions('strict', name).n}")
        print(_line(shown, tally.instructions("strict", name), tally.instructions("loose", name)))


def _line(name: str, strict: Proportion, loose: Proportion) -> str:
    return f"{name:<56}{_rate(strict):<29}{_rate(loose)}"


def _rate(share: Proportion) -> str:
    """Return a rate in percent with Wilson's 95 % interval."""
    if not share.n:
        return "-"
    low, high = share.interval
    return f"{100 * share.rate:6.2f} [{100 * low:.2f}, {100 * high:.2f}]"
