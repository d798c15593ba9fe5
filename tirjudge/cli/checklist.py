"""`tirjudge checklist`: turns people's remarks in rows into checklists, for the rationale judge."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.errors import INTERRUPTED, SOME_FAILED, output_file, refuse_input, say, stop
from tirjudge.cli.help import examples
from tirjudge.cli.options import takes_options
from tirjudge.cli.progress import say_failure
from tirjudge.console_text import Interval
from tirjudge.data.rows import RowFile
from tirjudge.evaluation.checklists import REMARKS, RowWithChecklist, checklists
from tirjudge.judging.batch import Failure
from tirjudge.judging.meta_judge import MetaJudgeConfig
from tirjudge.rollout.reward_questions import AnswerStore
from tirjudge.storage.run_folder import JsonLines
from tirjudge_environments.rationales.decomposition import SIZES
from tirjudge_environments.tasks import Columns


@examples(
    "tirjudge checklist rows.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge checklist rows.jsonl --model ./my-model --remarks feedback --at-least 3",
)
@takes_options("checklist")
def checklist(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Rows: JSON lines, JSON or CSV; - is standard input.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Result file.  [default: NAME.checklists.jsonl in this folder]", rich_help_panel="Output"
        ),
    ] = None,
    remarks: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column of people's remarks: HelpSteer3's list, texts, or a text.",
            rich_help_panel="Rows",
        ),
    ] = REMARKS,
    at_least: Annotated[
        int, typer.Option(min=0, help="Fewest points of a checklist to keep.", rich_help_panel="Rows")
    ] = SIZES.start,
    at_most: Annotated[
        int, typer.Option(min=0, help="Most points of a checklist to keep.", rich_help_panel="Rows")
    ] = SIZES.stop - 1,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=COLUMN",
            help="Column that holds a part of a row, such as prompt=context. Repeatable.",
            rich_help_panel="Rows",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read only the first N rows.", rich_help_panel="Rows")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON.", rich_help_panel="Output")
    ] = False,
    *,
    options: MetaJudgeConfig,
) -> None:
    """Turn people's remarks on pairs of responses into checklists.

    This is the atomic decomposition of the rationale judge. The same command resumes an interrupted run:
    answers are stored in OUTPUT.asked. Exit codes: 0 all rows done, 1 some failed, 2 usage or a model that is
    down, 130 interrupted.
    """
    target = output_file(output, file, "checklists")
    rows = RowFile(file)
    refuse_input(target, rows)
    sizes = range(at_least, at_most + 1)
    work = _write(rows, options, target, Columns.parse(column or ()), remarks, sizes, limit)
    try:
        tally = asyncio.run(work)
    except KeyboardInterrupt:
        stop("checklist", "interrupted; the same command resumes", INTERRUPTED)
    print(json.dumps({"output": str(target), **tally.record()}) if as_json else target)
    raise typer.Exit(SOME_FAILED if tally.failed else 0)


async def _write(
    rows: RowFile,
    config: MetaJudgeConfig,
    output: Path,
    columns: Columns,
    remarks: str,
    sizes: range,
    limit: int | None,
) -> Tally:
    """Write the checklists."""
    answers = output.with_name(output.name + ".asked")
    answers.mkdir(exist_ok=True)
    tally = Tally()
    with JsonLines(output, truncate=True) as lines:
        reward_questions = config.open(kept=AnswerStore(answers), say=say)
        try:
            found = checklists(
                islice(rows, limit), reward_questions, columns=columns, remarks=remarks, sizes=sizes
            )
            async with aclosing(found):
                async for one in found:
                    tally.count(one)
                    if isinstance(one, RowWithChecklist) and one.kept:
                        lines.append(one.fields)
        finally:
            await reward_questions.close()
    tally.say()
    return tally


class Tally:
    """Counts of checklists and failures, printed from time to time."""

    def __init__(self) -> None:
        self.kept = self.dropped = self.failed = 0
        self._interval = Interval()

    def count(self, one: RowWithChecklist | Failure) -> None:
        if isinstance(one, Failure):
            self.failed += 1
            say_failure(one, self.failed)
        elif one.kept:
            self.kept += 1
        else:
            self.dropped += 1
        if self._interval.over():
            self.say()

    def record(self) -> dict[str, int]:
        """Return the counts as JSON."""
        return {"checklists": self.kept, "too_short_or_too_long": self.dropped, "failed": self.failed}

    def say(self) -> None:
        say(f"{self.kept} checklists, {self.dropped} too short or too long, {self.failed} rows failed")
