"""`tirjudge reproduce`: run the programs of a result file again and compare their outputs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.options import takes_options
from tirjudge.cli.output import INTERRUPTED, SOME_FAILED, examples, say, stop
from tirjudge.console_text import Interval, printable, table
from tirjudge.judging.config import SandboxConfig
from tirjudge.judging.reproduction import (
    Outcome,
    Reproduction,
    has_programs,
    recorded_programs,
    reproductions,
    verdicts,
)
from tirjudge.judging.rereading import CHANGED, ChangedVerdict, Rereading
from tirjudge.storage.result_file import recorded_settings
from tirjudge_sandbox import Limits

_LONGEST_REASON = 240
_LISTED = 50
"""Programs that the table names; `--json` has all of them."""


@examples(
    "tirjudge reproduce rows.verdicts.jsonl",
    "tirjudge reproduce rows.verdicts.jsonl --backend docker --timeout 5 --json",
)
@takes_options("reproduce")
def reproduce(
    file: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Result file of judge, eval or bon.", show_default=False)
    ],
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run only the first N programs.", rich_help_panel="Rows"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Wall and CPU time of a program.  [default: 20 wall, 10 CPU, as when judging]",
            rich_help_panel="Sandbox",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel="Output")
    ] = False,
    *,
    options: SandboxConfig,
) -> None:
    """Run every recorded program again, and read every verdict again; compare both with the record.

    A result file of somebody else is hostile code: sandbox, limits and imports come from these options and
    never from the file. Exit codes: 0 every program gave the recorded output and every verdict follows from
    its dialogue, 1 some did not, 2 usage, no dialogue in the file, or no sandbox; 130 interrupted.
    """
    if timeout is not None and not timeout > 0:
        raise ValueError(f"--timeout must be positive, not {timeout:g}")
    limits = Limits() if timeout is None else Limits(wall_seconds=timeout, cpu_seconds=timeout)
    result = _Result(str(file), verdicts(file))
    if has_programs(file):
        _hint_at_import_policy(file, options)
        try:
            asyncio.run(_reproduce(file, options, limits, limit, result))
        except KeyboardInterrupt:
            stop("reproduce", f"interrupted after {result.programs} programs", INTERRUPTED)
    else:
        say(f"tirjudge reproduce: {file} has no program that was run: only its verdicts are read again")
    print(json.dumps(result.record(), indent=2)) if as_json else result.print()
    raise typer.Exit(0 if result.is_same else SOME_FAILED)


@dataclass(slots=True)
class _Result:
    """Counts of the outcomes, and the programs that did not give the recorded output."""

    file: str
    verdicts: Rereading
    counts: Counter[Outcome] = field(default_factory=Counter)
    others: list[Reproduction] = field(default_factory=list)

    @property
    def programs(self) -> int:
        return self.counts.total()

    @property
    def is_same(self) -> bool:
        return not self.others and not self.verdicts.changed

    def add(self, one: Reproduction) -> None:
        self.counts[one.outcome] += 1
        if one.outcome is not Outcome.SAME:
            self.others.append(one)

    def record(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "programs": self.programs,
            **{outcome.value: self.counts[outcome] for outcome in Outcome},
            "verdicts": self.verdicts.read,
            "verdicts_changed": len(self.verdicts.changed),
            "verdicts_not_read": self.verdicts.unreadable,
            "not_same": [*map(_verdict_record, self.verdicts.changed), *map(_record, self.others)],
        }

    def print(self) -> None:
        rows = [("programs", str(self.programs))]
        rows += [(outcome.value, str(self.counts[outcome])) for outcome in Outcome]
        rows.append(("verdicts read again", str(self.verdicts.read)))
        rows.append(("verdict changed", str(len(self.verdicts.changed))))
        if self.verdicts.unreadable:
            rows.append(("verdicts not read", str(self.verdicts.unreadable)))
        print("\n".join(table(rows)))
        records = [*map(_verdict_record, self.verdicts.changed), *map(_record, self.others)]
        if records:
            print()
            heading = ("outcome", "row", "view", "program", "reason")
            listed = [tuple(map(str, record.values())) for record in records[:_LISTED]]
            cells = [tuple(printable(cell, _LONGEST_REASON) for cell in row) for row in [heading, *listed]]
            print("\n".join(table(cells, words=len(heading))))
        if len(records) > _LISTED:
            print(f"and {len(records) - _LISTED} more; --json lists all of them")


async def _reproduce(
    file: Path, options: SandboxConfig, limits: Limits, most: int | None, result: _Result
) -> None:
    due = Interval()
    async with options.sandbox() as sandbox:
        programs = islice(recorded_programs(file), most)
        weak = options.allow_weak_isolation
        async with aclosing(reproductions(programs, sandbox, limits, allow_weak_isolation=weak)) as finished:
            async for one in finished:
                result.add(one)
                if due.over():
                    say(f"{result.programs} programs, {len(result.others)} of them not the same")


def _verdict_record(one: ChangedVerdict) -> dict[str, Any]:
    return {"outcome": CHANGED, "id": one.row.id, "view": one.place, "program": "-", "reason": one.reason}


def _record(one: Reproduction) -> dict[str, Any]:
    recorded = one.recorded
    sample = f" sample {recorded.sample}" if recorded.sample else ""
    return {
        "outcome": one.outcome.value,
        "id": recorded.row.id,
        "view": f"{recorded.view}{sample}",
        "program": recorded.number,
        "reason": one.reason,
    }


def _hint_at_import_policy(file: Path, options: SandboxConfig) -> None:
    """Say so if the programs ran under another import policy; the file's own word changes nothing."""
    judged = (recorded_settings(file) or {}).get("import_policy")
    if judged is True and not options.import_policy:
        say("tirjudge reproduce: these programs ran with --import-policy, which is not given here")
    if judged is False and options.import_policy:
        say("tirjudge reproduce: these programs ran without --import-policy, which is given here")
