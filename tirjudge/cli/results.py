"""The commands about result files: `tirjudge show`, `report`, `reproduce` and `export`."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.options import takes_options, with_groups
from tirjudge.cli.output import (
    INTERRUPTED,
    SOME_FAILED,
    add_command,
    command_group,
    console,
    examples,
    one_line_errors,
    option,
    say,
    stop,
)
from tirjudge.cli.score_options import StoredOptions
from tirjudge.console_text import counted, printable, table
from tirjudge.generation.spending import Price
from tirjudge.judging.options import SandboxOptions
from tirjudge.judging.reproduction import (
    Reproduction,
    RerunStatus,
    has_programs,
    recorded_programs,
    reproductions,
    require_prepared,
)
from tirjudge.judging.rereading import CHANGED, ChangedVerdict, Rereading, verdicts
from tirjudge.judging.tally import CheckerTally, EvidenceTally
from tirjudge.progress import ProgressReporter
from tirjudge.records.result_row import ResultRow, is_result_file, is_truncated, read_result_rows
from tirjudge.records.text import print_row, row_line
from tirjudge.report.row_table import Texts
from tirjudge.statistics.clusters import prompt_cluster
from tirjudge.storage.durable_files import write_atomically
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.result_file import failures_path, recorded_settings
from tirjudge_sandbox import Limits

_LONGEST_REASON = 1000
_Found = tuple[ResultRow, Mapping[str, Any]]


@examples(
    "tirjudge show rows.verdicts.jsonl",
    "tirjudge show rows.verdicts.jsonl line-7",
    "tirjudge show rows.verdicts.jsonl --wrong --random 3 | less -R",
)
def show(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS... [ID]...",
            help="Result files of judge, eval or bon, or a quoted pattern of them; ids of rows to show.",
            show_default=False,
        ),
    ],
    wrong: Annotated[
        bool, option("Rows", "Rows whose verdict is not the label's or the rating.", "--wrong")
    ] = False,
    flipped: Annotated[
        bool, option("Rows", "Rows whose verdict changes with the order shown.", "--flipped")
    ] = False,
    failed: Annotated[
        bool, option("Rows", "Rows without a verdict, and the rows in RESULTS.failed.jsonl.", "--failed")
    ] = False,
    program_failed: Annotated[
        bool, option("Rows", "Rows with a program that failed.", "--program-failed")
    ] = False,
    decided: Annotated[
        bool | None,
        option(
            "Rows",
            "Rows whose verdict a program decided, or no program did.",
            "--decided/--undecided",
            show_default=False,
        ),
    ] = None,
    random_rows: Annotated[
        int | None, option("Rows", "N rows, drawn at random.", "--random", min=1, metavar="N")
    ] = None,
    seed: Annotated[int, option("Rows", "Seed of --random.")] = 0,
    limit: Annotated[int | None, option("Rows", "The first N rows.", min=1, metavar="N")] = None,
    brief: Annotated[
        bool | None,
        option(
            "Output",
            "One line per row.  [default: full, and brief if no row is selected]",
            "--brief/--full",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, option("Output", "Print the rows as JSON lines.", "--json")] = False,
) -> None:
    """Show rows of a result file: the responses, the dialogue, programs, outputs and the reward.

    Options that select rows can be combined. Without any of them, every row is one line. Exit codes: 0, also
    if no row matches; 2 for an unknown ID and for a file that is no result file.
    """
    with one_line_errors("show"):
        files, ids = _files_and_ids(words)
        wanted = [wrong, flipped, failed, program_failed, decided is not None, random_rows, limit, ids]
        brief = not any(wanted) if brief is None else brief
        selection = _Selection(files, ids, wrong, flipped, failed, program_failed, decided)
        rows: Iterator[_Found] = selection.rows()
        if random_rows is not None:
            rows = _drawn(rows, random_rows, seed)
        terminal, shown = console(), 0
        for row, fields in islice(rows, limit):
            shown += 1
            apart = selection.apart if row.verdict_decided and not as_json else ()
            if as_json:
                # ASCII: JSON leaves some control characters of a terminal as they are.
                print(json.dumps(fields))
            elif brief:
                line = row_line(row, apart)
                line.truncate(terminal.width, overflow="ellipsis")
                terminal.print(line, soft_wrap=True)
            else:
                print_row(terminal, row, apart)
        selection.report(shown, as_json=as_json)
        if not as_json and not any(wanted):
            print("\n".join(_numbers(files)))


def _files_and_ids(words: Sequence[str]) -> tuple[list[Path], set[str]]:
    """Return the result files among the words, of which the first one names some, and the ids."""
    from tirjudge.evaluation.stored_outputs.files import matching_files

    files, ids = matching_files(Path(words[0])), set[str]()
    for word in words[1:]:
        found = [] if not Path(word).exists() and "*" not in word else matching_files(Path(word))
        if found and all(path.is_file() and is_result_file(path) for path in found):
            files += found
        else:
            ids.add(word)
    return files, ids


def _numbers(files: Sequence[Path]) -> Iterator[str]:
    """Yield accuracy, who won, and what programs decided, if known, as `tirjudge score` prints them."""
    from tirjudge.cli.score_output import decided_lines, headline, who_won_lines
    from tirjudge.evaluation.runs import default_protocols, score_run
    from tirjudge.evaluation.stored_outputs.reading import open_results

    checkers = CheckerTally()
    for _, fields in chain.from_iterable(map(read_result_rows, files)):
        checkers.add(fields)
    yield from (f"{heading:<10}{line}" for heading, line in checkers.lines())
    run = open_results(files)
    names = dict.fromkeys((default_protocols(run)[0], "win-rate", "ratings"))
    for one in score_run(run, list(names), run.benchmark, seed=0)[0]:
        if one.score.card.name != "ratings" or "Spearman" in one.score.estimates:
            yield from who_won_lines([one.score]) or [headline(one.score, run.name)]
    yield from (f"{heading:<10}{printable(line)}" for heading, line in run.evidence.entries())
    yield from decided_lines(run)


def _drawn(rows: Iterator[_Found], count: int, seed: int) -> Iterator[_Found]:
    """Yield rows drawn at random, in the order of the file; no more than `count` are kept in memory."""
    draw = random.Random(seed)
    keyed = ((draw.random(), position, found) for position, found in enumerate(rows))
    for _, _, found in sorted(heapq.nlargest(count, keyed), key=lambda one: one[1]):
        yield found


@dataclass
class _Selection:
    """The rows of a file that fit all options, and what is said about the others at the end."""

    files: list[Path]
    ids: set[str]
    wrong: bool
    flipped: bool
    failed: bool
    program_failed: bool
    decided: bool | None
    _is_far: Callable[[ResultRow], bool] | None = None
    _total: int = 0
    _others: set[str] = field(default_factory=set)
    _missing: set[str] = field(default_factory=set)
    _read: bool = False
    """True once the whole file was read; --limit may end it before."""

    def rows(self) -> Iterator[_Found]:
        self._missing = set(self.ids)
        for row, fields in chain.from_iterable(map(read_result_rows, self.files)):
            self._total += 1
            self._missing.discard(row.id)
            if self._missing:
                self._others.add(row.id)
            if self._fits(row):
                yield row, fields
        self._read = True

    def _fits(self, row: ResultRow) -> bool:
        return (
            (not self.ids or row.id in self.ids)
            and (not self.wrong or (row.correct is not None and row.correct < 1) or self._far(row))
            and (not self.flipped or row.flipped)
            and (not self.failed or row.stop != "verdict")
            and (not self.program_failed or row.programs_failed > 0)
            and (self.decided is None or row.verdict_decided is self.decided)
            and (not self.decided or row.id not in self.apart)
        )

    @cached_property
    def apart(self) -> Collection[str]:
        """The ids of the rows that a copied program or the rule about empty answers decided."""
        evidence = EvidenceTally()
        for row, fields in chain.from_iterable(map(read_result_rows, self.files)):
            evidence.add(fields, row.correct, row.label, prompt_cluster(fields.get("prompt")))
        return evidence.apart

    def _far(self, row: ResultRow) -> bool:
        """Return True for a score that is far from people's rating, by the scale of the whole file."""
        if row.rating is None or isinstance(row.rating, bool):
            return False
        if self._is_far is None:
            from tirjudge.evaluation.rating_agreement import far_from_rating

            self._is_far = far_from_rating(self.files)
        return self._is_far(row)

    def report(self, shown: int, *, as_json: bool) -> None:
        """Print the rows without a result, and what was not found. Raises ValueError for an unknown id."""
        for failure in chain.from_iterable(read_lines(failures_path(file)) for file in self.files):
            id, where = str(failure.get("id")), failure.get("where")
            if (self.failed and not self.ids) or id in self._missing:
                self._missing.discard(id)
                shown += 1
                if as_json:
                    print(json.dumps(failure))
                else:
                    print(printable(f"{where}: no result: {failure.get('reason')}", _LONGEST_REASON))
        for file in filter(is_truncated, self.files):
            say(f"tirjudge show: {file} ends in the middle of a row, which is left out")
        named = ", ".join(map(str, self.files))
        if self._missing and self._read:
            unknown = min(self._missing)
            close = get_close_matches(unknown, sorted(self._others), n=3)
            hint = f"; the closest ids are {', '.join(close)}" if close else ""
            raise ValueError(f"{named} has no row {unknown!r} among its {self._total}{hint}")
        if not shown:
            rows = counted(self._total, "row")
            more = "none matches the options" if self._total else "--failed shows rows without a result"
            say(f"tirjudge show: {named} has {rows}; {more}")


RENEWED = 30
"""Seconds between two pages of a run that goes on."""
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Result files, or run folders of tirjudge train.", show_default=False
    ),
]
TextsOption = Annotated[
    Texts, option("Output", "Rows whose prompt, responses and dialogues the page contains.")
]
PriceIn = Annotated[float | None, option("Cost", "Price of a million prompt tokens.", min=0, metavar="PRICE")]
PriceOut = Annotated[
    float | None, option("Cost", "Price of a million completion tokens.", min=0, metavar="PRICE")
]
Seed = Annotated[int, option("Output", "Seed of the bootstrap.")]


@examples(
    "tirjudge report rows.verdicts.jsonl -o report.html",
    "tirjudge report rows.verdicts.jsonl --labels rows.labels.jsonl",
    "tirjudge report before.verdicts.jsonl after.verdicts.jsonl --texts wrong",
    "tirjudge report runs/smol-0 --follow",
)
@with_groups
def report(
    runs: Runs,
    output: Annotated[Path, option("Output", "The page.", "--output", "-o", metavar="FILE")] = Path(
        "report.html"
    ),
    title: Annotated[str, option("Output", "Title of the page.  [default: the names of the runs]")] = "",
    texts: TextsOption = "all",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    seed: Seed = 0,
    follow: Annotated[
        bool,
        option("Output", "Write the page of a training again until it ends, and let it reload.", "--follow"),
    ] = False,
    *,
    stored: StoredOptions,
) -> None:
    """Write one page that needs no network: numbers with intervals, breakdowns, and every row to read.

    It also shows the stored outputs of other projects, which tirjudge score reads with the same options.
    Several result files are compared with the first, row by row; curves of several training runs are drawn
    over each other. Exit codes: 0 done; 2 for a file that is no result file, a folder without metrics, and
    runs that have no row in common; 130 interrupted.
    """
    with one_line_errors("report"):
        if output.is_dir() or any(output.exists() and output.samefile(run) for run in runs if run.exists()):
            raise ValueError(f"--output {output}: choose a file that is not one of the runs")
        if follow:
            _follow(runs, output)
        from tirjudge.cli.score_output import stored_files
        from tirjudge.report.page import page_of

        files, meanings = stored.files_and_meanings()
        opened, _ = stored_files(stored, stored.column or ())
        named = bool(meanings) or replace(stored, labels=None) != StoredOptions()
        price, own = price_of(price_in, price_out), files[0] if files else None
        read = partial(page_of, runs, opened=opened, named=named, labels=own)
        page = read(texts=texts, price=price, seed=seed, title=title)
        write_atomically(output, page.html)
    held = "with" if page.text_bytes else "without"
    about = f" ({counted(page.rows, 'row')}, {held} texts)" if page.rows else ""
    print(f"open {output.resolve().as_uri()}{about}")


def _follow(runs: Sequence[Path], output: Path) -> None:
    """Write the page of training runs every RENEWED seconds while a process trains one of them."""
    from tirjudge.report.page import training_page
    from tirjudge.report.training import is_going_on, read_training_run

    if not all(run.is_dir() for run in runs):
        raise ValueError("--follow belongs to run folders of tirjudge train")
    said = False
    try:
        while any(map(is_going_on, runs)):
            page = training_page(list(map(read_training_run, runs)), renewed=RENEWED)
            write_atomically(output, page.html)
            if not said:
                say(f"open {output.resolve().as_uri()}, which is renewed every {RENEWED} s; Ctrl-C ends it")
                said = True
            time.sleep(RENEWED)
    except KeyboardInterrupt:
        stop("report", f"interrupted; {output} shows the run as it was", INTERRUPTED)


def price_of(price_in: float | None, price_out: float | None) -> Price | None:
    """Return the price that the options give. Raises ValueError if only one price is given."""
    if price_in is None and price_out is None:
        return None
    if price_in is None or price_out is None:
        raise ValueError("--price-in and --price-out belong together")
    return Price(price_in, price_out)


_LONGEST_CELL = 240
_LISTED = 50
"""Programs that the table names; `--json` has all programs."""


@examples(
    "tirjudge reproduce rows.verdicts.jsonl",
    "tirjudge reproduce rows.verdicts.jsonl --backend docker --timeout 5 --json",
)
@takes_options("reproduce")
def reproduce(
    file: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="Result file of judge, eval or bon.", show_default=False)
    ],
    limit: Annotated[int | None, option("Rows", "Run only the first N programs.", min=1, metavar="N")] = None,
    timeout: Annotated[
        float | None,
        option(
            "Sandbox",
            "Wall and CPU time of a program.  [default: 20 wall, 10 CPU, as when judging]",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, option("Output", "Print the result as JSON.", "--json")] = False,
    *,
    options: SandboxOptions,
) -> None:
    """Run every recorded program again, and read every verdict again; compare both with the record.

    A result file of somebody else is hostile code: sandbox, limits and imports come from these options and
    never from the file. Exit codes: 0 every program gave the recorded output and every verdict follows from
    its dialogue, 1 some did not, 2 usage, no dialogue in the file, or no sandbox; 130 interrupted.
    """
    if timeout is not None and not timeout > 0:
        raise ValueError(f"--timeout must be positive, not {timeout:g}")
    limits = options.limits
    if timeout is not None:
        limits = replace(limits, wall_seconds=timeout, cpu_seconds=timeout)
    result = _Result(str(file), verdicts(file))
    try:
        if has_programs(file):
            require_prepared(file, options.prepare)
            _hint_at_settings(file, options)
            asyncio.run(_reproduce(file, options, limits, limit, result))
        else:
            say(f"tirjudge reproduce: {file} has no program that was run: only its verdicts are read again")
    except KeyboardInterrupt:
        stop("reproduce", f"interrupted after {result.programs} programs", INTERRUPTED)
    print(json.dumps(result.record(), indent=2)) if as_json else result.print()
    raise typer.Exit(0 if result.is_same else SOME_FAILED)


@dataclass(slots=True)
class _Result:
    """Counts of the outcomes, and the programs that did not give the recorded output."""

    file: str
    verdicts: Rereading
    counts: Counter[RerunStatus] = field(default_factory=Counter)
    others: list[Reproduction] = field(default_factory=list)

    @property
    def programs(self) -> int:
        return self.counts.total()

    @property
    def is_same(self) -> bool:
        return not self.others and not self.verdicts.changed

    def add(self, one: Reproduction) -> None:
        self.counts[one.outcome] += 1
        if one.outcome not in (RerunStatus.SAME, RerunStatus.NOT_REPEATED):
            self.others.append(one)

    def record(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "programs": self.programs,
            **{outcome.value: self.counts[outcome] for outcome in RerunStatus},
            "verdicts": self.verdicts.read,
            "verdicts_changed": len(self.verdicts.changed),
            "verdicts_not_read": self.verdicts.unreadable,
            "not_same": [*map(_verdict_record, self.verdicts.changed), *map(_record, self.others)],
        }

    def print(self) -> None:
        counts = {
            "programs": self.programs,
            **{outcome.value: self.counts[outcome] for outcome in RerunStatus},
            "verdicts read again": self.verdicts.read,
            "verdict changed": len(self.verdicts.changed),
            "verdicts not read": self.verdicts.unreadable,
        }
        seldom = (RerunStatus.NOT_REPEATED.value, "verdicts not read")
        rows = [(name, str(count)) for name, count in counts.items() if count or name not in seldom]
        print("\n".join(table(rows)))
        records = self.record()["not_same"]
        if records:
            print()
            heading = ("outcome", "row", "view", "program", "reason")
            listed = ([printable(str(cell), _LONGEST_CELL) for cell in one.values()] for one in records)
            print("\n".join(table([heading, *islice(listed, _LISTED)], words=len(heading))))
        if len(records) > _LISTED:
            print(f"and {len(records) - _LISTED} more; --json lists all of them")


async def _reproduce(
    file: Path, options: SandboxOptions, limits: Limits, most: int | None, result: _Result
) -> None:
    progress = ProgressReporter(
        say, unit="programs", detail=lambda: f"{len(result.others)} of them not the same"
    )
    async with options.closed_sandbox() as sandbox:
        programs = islice(recorded_programs(file), most)
        weak = options.allow_weak_isolation
        async with aclosing(reproductions(programs, sandbox, limits, allow_weak_isolation=weak)) as finished:
            async for one in finished:
                result.add(one)
                progress.count(one)


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


def _hint_at_settings(file: Path, options: SandboxOptions) -> None:
    """Say so if the programs ran under another policy or limits; the file's own word changes nothing."""
    recorded = recorded_settings(file) or {}
    if options.prepare and not recorded.get("prepare"):
        say("tirjudge reproduce: these programs ran without --prepare, which is given here")
    limits = recorded.get("program_limits")
    if isinstance(limits, dict) and limits != options.program_limits:
        given = " ".join(f"--program-limit {name}={value}" for name, value in limits.items())
        say(f"tirjudge reproduce: these programs ran with {printable(given or 'the usual limits')}")
    judged = recorded.get("import_policy")
    if judged is True and not options.import_policy:
        say("tirjudge reproduce: these programs ran with --import-policy, which is not given here")
    if judged is False and options.import_policy:
        say("tirjudge reproduce: these programs ran without --import-policy, which is given here")


_EXPORT = "tirjudge export inspect rows.verdicts.jsonl -o logs && inspect view --log-dir logs"
export = command_group("Write result files as logs of Inspect.", _EXPORT)


@examples(_EXPORT)
def inspect(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS...", help="Result files of judge, eval or bon.", show_default=False),
    ],
    output: Annotated[Path, option("Output", "Folder of logs.", "--output", "-o", metavar="FOLDER")] = Path(
        "logs"
    ),
) -> None:
    """Write each result file as a log that `inspect view` opens; needs the extra `inspect`.

    A row is a sample: the dialogues are its messages and events, every program is a tool call, and the
    verdict is its score. Prints the path of each log. Exit codes: 0 written, 2 usage.
    """
    from tirjudge.records.inspect_log import write_inspect_log

    with one_line_errors("export inspect"):
        for file in files:
            if is_truncated(file):
                say(f"tirjudge export inspect: {file} ends in the middle of a row, which is left out")
            print(printable(str(write_inspect_log(file, output))))


add_command(export, inspect)
