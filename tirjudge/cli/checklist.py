"""`tirjudge checklist`: rows with people's remarks to rows with a checklist, for the rationale judge."""

from __future__ import annotations

import asyncio
import typer
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from tirjudge.batch import Failure
from tirjudge.cli.one_line import INTERRUPTED
from tirjudge.cli.one_line import SOME_FAILED
from tirjudge.cli.one_line import one_line_errors
from tirjudge.cli.one_line import say
from tirjudge.cli.one_line import stop
from tirjudge.cli.output_file import output_file
from tirjudge.cli.output_file import refuse_input
from tirjudge.cli.progress import say_failure
from tirjudge.console_text import Interval
from tirjudge.data.rows import RowFile
from tirjudge.evaluation.checklists import Checked
from tirjudge.evaluation.checklists import REMARKS
from tirjudge.evaluation.checklists import checklists
from tirjudge.meta_judge import MetaJudgeConfig
from tirjudge.rollout.reward_questions import AnswerStore
from tirjudge.storage.run_folder import JsonLines
from tirjudge_environments.rationales.decomposition import SIZES
from tirjudge_environments.tasks import Columns
from typing import Annotated


def checklist(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Rows: JSON lines, JSON or CSV; - is standard input.")
    ],
    model: Annotated[str, typer.Option(help="Folder, hub id, or an endpoint's name for it.")],
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint.")] = "",
    output: Annotated[
        Path | None, typer.Option(help="Result file; by default NAME.checklists.jsonl in this folder.")
    ] = None,
    remarks: Annotated[
        str, typer.Option(metavar="COLUMN", help="What people said: HelpSteer3's list, texts, or a text.")
    ] = REMARKS,
    at_least: Annotated[int, typer.Option(min=0, help="Points of a checklist that is kept.")] = SIZES.start,
    at_most: Annotated[int, typer.Option(min=0, help="Points of a checklist that is kept.")] = SIZES.stop - 1,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="PART=COLUMN", help="Where rows hold a part: prompt=context."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of one answer.")] = 8192,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 32,
    patience: Annotated[float, typer.Option(min=0, help="Seconds to wait for a model that is down.")] = 600.0,
) -> None:
    """Turn people's remarks on pairs of responses into checklists.

    It is the rationale judge's atomic decomposition. The same command goes on where a stopped one was:
    answers are kept in OUTPUT.asked. Exit codes: 0 all rows read, 1 some could not be, 2 usage or a model
    that is down, 130 interrupted.
    """
    with one_line_errors("checklist"):
        config = MetaJudgeConfig(
            model=model, base_url=base_url, max_tokens=max_tokens, concurrency=concurrency, patience=patience
        )
        target = output_file(output, file, "checklists")
        rows = RowFile(file)
        refuse_input(target, rows)
        work = _write(
            rows, config, target, Columns.parse(column or ()), remarks, range(at_least, at_most + 1), limit
        )
        try:
            failed = asyncio.run(work)
        except KeyboardInterrupt:
            stop("checklist", "interrupted; the same command goes on", INTERRUPTED)
        raise typer.Exit(SOME_FAILED if failed else 0)


async def _write(
    rows: RowFile,
    config: MetaJudgeConfig,
    output: Path,
    columns: Columns,
    remarks: str,
    sizes: range,
    limit: int | None,
) -> int:
    """Returns how many rows failed."""
    answers = output.with_name(output.name + ".asked")
    answers.mkdir(exist_ok=True)
    tally = Tally()
    with JsonLines(output, truncate=True) as lines:
        asking = config.open(kept=AnswerStore(answers), say=say)
        try:
            found = checklists(islice(rows, limit), asking, columns=columns, remarks=remarks, sizes=sizes)
            async with aclosing(found):
                async for one in found:
                    tally.count(one)
                    if isinstance(one, Checked) and one.kept:
                        lines.append(one.fields)
        finally:
            await asking.close()
    tally.say()
    print(output)
    return tally.failed


class Tally:
    """What became of the rows, said now and then."""

    def __init__(self) -> None:
        self.kept = self.left_out = self.failed = 0
        self._interval = Interval()

    def count(self, one: Checked | Failure) -> None:
        if isinstance(one, Failure):
            self.failed += 1
            say_failure(one, self.failed)
        elif one.kept:
            self.kept += 1
        else:
            self.left_out += 1
        if self._interval.over():
            self.say()

    def say(self) -> None:
        say(f"{self.kept} checklists, {self.left_out} too short or too long, {self.failed} rows failed")
