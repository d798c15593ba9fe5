"""`tirjudge judge`, which judges a file of rows, and `tirjudge formats`, which lists the judge formats."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import SecretStr

from tirjudge.cli.options import RowsOptions, RunOptions, joined_answers, least_wins, takes_options
from tirjudge.cli.output import (
    INTERRUPTED,
    SOME_FAILED,
    STANDARD_OUTPUT,
    examples,
    option,
    output_file,
    refuse_input,
    say,
    stop,
)
from tirjudge.cli.run_display import Display, Summary, introduction
from tirjudge.cli.score_options import JunitOption
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.data.sources import RowSource
from tirjudge.generation.spending import CostReached, Spending
from tirjudge.judging.batch import (
    BatchRunner,
    EngineRowJudge,
    Plan,
    ResultSink,
    RowJudge,
    TooManyFailures,
    Work,
)
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judge_model import local_note, local_weights, most_tokens, undecided_verdicts
from tirjudge.judging.options import endpoint_key
from tirjudge.judging.rereading import relabelled
from tirjudge.judging.tally import Tally
from tirjudge.progress import on_terminal
from tirjudge.ray_cluster.dispatch import ClusterRowJudge
from tirjudge.ray_cluster.worker import Assignment
from tirjudge.records.result_row import read_result_row
from tirjudge.storage.json_lines import JsonObject
from tirjudge.storage.kept_files import keep_prepared
from tirjudge.storage.result_file import ResultFile, ResultStream, recorded_settings
from tirjudge_environments import JudgeCard, StopReason
from tirjudge_environments.registry import environment_names, environment_options, judge_cards
from tirjudge_sandbox.prepared import prepared_digest, prepared_files

if TYPE_CHECKING:
    from tirjudge.evaluation.judges import JudgesAgreement
    from tirjudge.evaluation.rating_agreement import RatingAgreement
    from tirjudge.evaluation.who_won import WhoWon

Judging = Callable[[Work], Awaitable[Mapping[str, Any]]]
"""Judges a row, and returns the row of the result file."""
_ADVICE = {
    "token_budget": ": --max-tokens allows more, and --no-enable-thinking less thinking",
    "turn_budget": ": --max-tool-calls allows more programs, --no-tools none",
    "malformed": ": the answers lack the form that the prompt asks for: try another --format or --tier",
}
"""What to do when no row got a verdict, by how the dialogues ended."""


@dataclass(slots=True, kw_only=True)
class BatchRun:
    """One start of a run; the same command starts again where this one stopped."""

    command: str
    """The command's name after `tirjudge`."""
    rows: RowSource
    options: RunOptions
    plan: Plan
    output: Path
    """The result file, or `-`: standard output, which no run resumes."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings that every verdict of the result file shares; null where they change nothing."""
    as_json: bool = False
    """Print the summary as JSON."""
    min_decided: float | None = None
    """A lower share of rows that programs decided is a failure; a share from 0 to 1."""
    min_accuracy: float | None = None
    """A lower accuracy of the labelled rows is a failure; a share from 0 to 1."""
    min_win_rate: tuple[str, float] | None = None
    """A lower win rate of the source of this name is a failure; a share from 0 to 1."""
    retry_malformed: bool = False
    """Judge the rows again that an earlier start left without a verdict."""
    quiet: bool = False
    """Leave standard output to the caller: the summary goes to standard error."""
    _weights: str = ""
    """See `local_weights`."""
    _cached: int = 0
    """Calls that a cache answered."""
    _relabelled: int = 0
    """Rows whose label changed since they were judged."""

    def run(self) -> bool:
        """Judge the rows without a result and print the summary.

        Returns True if every row has a result, at least one has a verdict, which may be left open, and the
        accuracy is not below `min_accuracy`.
        """
        refuse_input(self.output, self.rows)
        options = self.options = self.options.resuming(self.output)
        prices, self._weights = options.prices(), local_weights(options)
        with ExitStack() as stack:
            results: ResultFile | ResultStream
            if self.output == STANDARD_OUTPUT:
                results, calls = stack.enter_context(ResultStream()), None
            else:
                settings = self._settings()
                results = stack.enter_context(
                    ResultFile(self.output, settings, declared_by=type(options), overwrite=options.overwrite)
                )
                calls = self.output.with_name(self.output.name + ".calls.jsonl")
                if options.prepare and options.texts:
                    keep_prepared(self.output, prepared_files(options.prepare))
            spending = stack.enter_context(
                Spending(calls, prices=prices, limit=options.max_cost, overwrite=options.overwrite)
            )
            return self._judge(results, spending)

    def _judge(self, results: ResultFile | ResultStream, spending: Spending) -> bool:
        if self.retry_malformed and isinstance(results, ResultFile):
            _forget_malformed(results)
        tally = Tally.of(results.rows())
        count = self.rows.count()
        left = None if count is None else max(0, min(count, self.plan.limit or count) - tally.judged)
        display = Display(
            tally,
            total=left,
            failures_file=str(results.failures_path) if results.failures_path else None,
            spending=spending,
            row_lines=self.command == "judge",
            remote=bool(self.options.base_url or self.options.runner == "ray"),
        )
        try:
            completed, model, note = asyncio.run(self._batch(results, display, spending, tally))
        except KeyboardInterrupt:
            kept = f"the same command resumes, {tally.judged} rows are in {self.output}"
            streamed = f"{tally.judged} rows were written, and a run to standard output cannot be resumed"
            reason = f"interrupted; {streamed if self.output == STANDARD_OUTPUT else kept}"
            stop(self.command, reason, INTERRUPTED)
        if self._relabelled:
            tally = Tally.of(results.rows(), failed=tally.failed)
        rated = self._rated(tally, results.path)
        won, won_decided, agreement = self._compared(tally, results.path)
        summary = Summary(
            tally=tally,
            seconds=display.seconds,
            model=model,
            note=note,
            path=str(self.output),
            spending=spending,
            cached=self._cached,
            retries=display.retries,
            won=won,
            rated=rated,
            won_decided=won_decided,
            agreement=agreement,
        )
        if self.as_json:
            record = json.dumps(summary.record(), indent=2)
            print(record, file=sys.stderr if self.output == STANDARD_OUTPUT else sys.stdout)
        else:
            summary.print(to_standard_error=self.quiet or self.output == STANDARD_OUTPUT)
        answered = tally.verdicts + tally.open
        if not answered:
            say(f"tirjudge {self.command}: no row got a verdict: {self._why(results)}")
        counting = tally.evidence.counting(won, won_decided)
        reached = self._accurate(tally, rated) & self._decided(tally) & self._wins(won, counting)
        return completed and not tally.failed and bool(answered) and reached

    def _decided(self, tally: Tally) -> bool:
        """Return True if programs decided enough verdicts; otherwise say how many they decided."""
        share = tally.decided_share
        if self.min_decided is None or (share is not None and share >= self.min_decided):
            return True
        found = "no row says whether a program decided it"
        if share is not None:
            found = f"programs decided {tally.evidence.decided} of {tally.judged} rows, {share:.1%}"
        say(f"tirjudge {self.command}: {found}, below --min-decided {self.min_decided:g}")
        return False

    def _accurate(self, tally: Tally, rated: RatingAgreement | None) -> bool:
        """Return whether the accuracy, or the rank correlation of ratings, is high enough; else say so."""
        correlation = None if rated is None else rated.correlation
        if self.min_accuracy is None or (tally.labelled and tally.accuracy.rate >= self.min_accuracy):
            return True
        if not tally.labelled and correlation is not None:
            if correlation.value >= self.min_accuracy:
                return True
            found = f"the rank correlation with people's ratings is {correlation.value:.2f}"
        else:
            found = f"the accuracy is {tally.accuracy}" if tally.labelled else "no row has a label"
        say(f"tirjudge {self.command}: {found}, and --min-accuracy is {self.min_accuracy:g}")
        return False

    def _wins(self, won: WhoWon | None, counting: WhoWon | None) -> bool:
        """Return whether the named source won enough of the rows that count; else say how many it won."""
        if self.min_win_rate is None:
            return True
        name, least = self.min_win_rate
        sources = {} if counting is None else {one.name: one for one in counting.sources}
        if name in sources and sources[name].rate.value >= least:
            return True
        if name in sources:
            found = f"the win rate of {printable(name)} is {sources[name].rate.value:.1%}"
        elif sources:
            found = f"no source is {printable(name)!r}, only {printable(', '.join(sources))}"
        elif won is not None:
            found = "no program decided a row"
        else:
            found = "no row names the sources of its responses (--column responses=COLUMN,COLUMN)"
        say(f"tirjudge {self.command}: {found}, and --min-win-rate is {printable(name)}={least:g}")
        return False

    def _rated(self, tally: Tally, results: Path) -> RatingAgreement | None:
        """Return the agreement with people's labels of single responses."""
        if not tally.passes and not tally.ratings:
            return None
        from tirjudge.evaluation.rating_agreement import RatingAgreement

        return RatingAgreement.of(results, classes=tally.passes > 0, numbers=tally.ratings > 0)

    def _compared(
        self, tally: Tally, results: Path
    ) -> tuple[WhoWon | None, WhoWon | None, tuple[list[str], JudgesAgreement] | None]:
        """Return who won all rows and the rows that programs decided, and how far a jury that votes agrees.

        The rows of earlier runs into the same file are read too.
        """
        votes = len(tally.jury) > 1 and self.options.escalate_below is None
        if not tally.sources and not votes:
            return None, None, None
        from tirjudge.evaluation.judges import jury_agreement
        from tirjudge.evaluation.stored_outputs.reading import open_results
        from tirjudge.evaluation.who_won import who_won, who_won_decided

        run = open_results(results)
        return (
            who_won(run) if tally.sources else None,
            who_won_decided(run, tally.evidence) if tally.sources else None,
            jury_agreement(run) if votes else None,
        )

    def _why(self, results: ResultFile | ResultStream) -> str:
        """Return how most views ended, or why most rows failed, with the option that may help."""
        ends = Counter((view["stop"], view["detail"]) for row in results.rows() for view in row["views"])
        reasons = Counter(str(failure["reason"]) for failure in results.failures())
        if ends:
            (((end, detail), _),) = ends.most_common(1)
            advice = _ADVICE.get(end, "")
            asks = self.options.base_url and not (self.options.ask_for_verdict or self.options.exact)
            if end == "malformed" and self.command == "judge" and asks:
                advice += "; --retry-malformed --ask-for-verdict asks for the verdict alone"
            return f"most views ended by {end}{f' ({detail})' if detail else ''}{advice}"
        if reasons:
            ((reason, _),) = reasons.most_common(1)
            return f"most rows failed because: {reason}"
        return "the run stopped before a row was judged"

    async def _batch(
        self, results: ResultFile | ResultStream, display: Display, spending: Spending, tally: Tally
    ) -> tuple[bool, str, str]:
        """Return whether the run reached its end, the model's name and its note."""
        if not on_terminal():
            os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        needed, ready = asyncio.Event(), asyncio.Future[RowJudge]()

        async def judged(work: Work) -> Mapping[str, Any]:
            needed.set()
            return await (await asyncio.shield(ready)).row(work)

        judge: RowJudge | None = None
        sink, plan, where, completed = ResultSink(results, display), self.plan, "", True
        async with AsyncExitStack() as stack:
            if self.options.runner == "ray":
                cluster = judge = await stack.enter_async_context(self._on_ray(display, spending))
                plan = replace(plan, concurrency=cluster.capacity)
                where = f"on a Ray cluster of {cluster.size}"
            runner = BatchRunner(self._audited(judged, tally), sink, plan)
            running = asyncio.create_task(runner.run(self.rows))
            tasks = (running, asyncio.create_task(needed.wait()))
            try:
                # A run whose rows all have their results needs no model.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if judge is None and needed.is_set():
                    judge = await stack.enter_async_context(self._here(display, spending))
                if judge is not None:
                    say(introduction(judge, self.options, spending, where=where))
                    ready.set_result(judge)
                with display:
                    if not await running:
                        raise ValueError(f"{self.rows.name} has no rows")
            except (CostReached, TooManyFailures) as error:
                completed = False
                resumes = "" if self.output == STANDARD_OUTPUT else "; the same command resumes"
                say(f"stopped: {error}{resumes}")
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            self._relabel(results, sink.relabelled, display)
            if judge is None:
                last = next(iter(results.rows()), {})
                return completed, str(last.get("model") or self.options.model), str(last.get("note", ""))
            self._cached = judge.cached
            return completed, judge.model, judge.note

    def _audited(self, judge: Judging, tally: Tally) -> Judging:
        """Return `judge`, which raises TooManyFailures once the model disagrees with checkers too often."""
        most = self.options.max_disagreement
        if most is None:
            return judge

        async def judged(work: Work) -> Mapping[str, Any]:
            if (found := tally.checkers.above(most)) is not None:
                raise TooManyFailures(
                    f"the model disagrees with {found} of the audited decisions of {self.options.checkers}, "
                    f"more than --max-disagreement {most:g}"
                )
            return await judge(work)

        return judged

    def _relabel(
        self, results: ResultFile | ResultStream, works: Mapping[str, Work], display: Display
    ) -> None:
        """Compute again what follows from the labels of rows that were judged with another label."""
        if not works or not isinstance(results, ResultFile):
            return

        def change(row: JsonObject) -> JsonObject:
            work = works.get(row["id"])
            if work is None:
                return row
            recorded = read_result_row(row, f"row {row['id']}")
            changed = relabelled(recorded, work.task)
            return changed.model_copy(update={"digest": work.digest}).to_json()

        results.rewrite(change)
        self._relabelled = len(works)
        rows = "1 row has" if len(works) == 1 else f"{len(works)} rows have"
        again = "correct is computed again, rewards are left out, and nothing is judged again"
        say(f"{rows} another label than before: {again}")

    @asynccontextmanager
    async def _here(self, display: Display, spending: Spending) -> AsyncIterator[RowJudge]:
        async with JudgeEngine(
            self.options, spending=spending, weights=self._weights, on_retry=display.retried
        ) as engine:
            # Build the prompts of a fixed format now: a bad option should not wait for the first row.
            if self._format:
                engine.rollout(self._format)
            yield EngineRowJudge(engine, texts=self.plan.texts)

    def _on_ray(self, display: Display, spending: Spending) -> ClusterRowJudge:
        options, key = self.options, endpoint_key()
        assignment = Assignment(
            options=options,
            format=self._format,
            texts=self.plan.texts,
            api_key=None if key is None else SecretStr(key),
            weights=self._weights,
            prepared=prepared_digest(options.prepare) if options.prepare else "",
        )
        return ClusterRowJudge(
            assignment,
            spending,
            say=say,
            on_retry=display.retried,
            address=options.address,
            endpoints=options.endpoint,
            gpus=options.worker_gpus,
        )

    @property
    def _format(self) -> str:
        """The format or kind of all rows; empty if each row decides."""
        return self.options.format or self.plan.kind or ""

    def _settings(self) -> dict[str, Any]:
        """Return the settings that every verdict in the result file shares."""
        plan, options = self.plan, self.options
        recorded = recorded_settings(self.output) if self.retry_malformed else None
        if recorded is not None:
            # Rows without a verdict may be asked for it now; their dialogues record that they were.
            asked = recorded.get("ask_for_verdict", False)
            options = options.model_copy(update={"ask_for_verdict": asked})
        return {
            **options.settings(),
            "format": self.options.format or plan.kind,
            "columns": plan.columns.model_dump(exclude_unset=True),
            "labels": plan.labels,
            "max_tokens": most_tokens(self.options),
            "undecided": undecided_verdicts(self.options, map(local_note, self.options.jurors)),
            "weights": self._weights,
            **self.settings,
        }


def _forget_malformed(results: ResultFile) -> None:
    """Drop the rows without a verdict; a verdict that was left open is one."""
    before = len(results.digests)
    answered = (StopReason.VERDICT, StopReason.ABSTAINED)
    results.rewrite(lambda row: row if row["stop"] in answered else None)
    say(f"{before - len(results.digests)} of {before} rows have no verdict, and are judged again")


@examples(
    "tirjudge judge examples/instructions.jsonl",
    "tirjudge judge --pairwise rows.jsonl --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
)
@takes_options("judge")
def judge(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Rows: JSON lines, JSON, CSV, Parquet; a quoted pattern of files; a hub id OWNER/NAME; "
            "- is standard input.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        option(
            "Output", "Result file; - for standard output.  [default: NAME.verdicts.jsonl]", "--output", "-o"
        ),
    ] = None,
    as_json: Annotated[bool, option("Output", "Print the summary as JSON.", "--json")] = False,
    min_accuracy: Annotated[
        float | None,
        option(
            "Output",
            "Exit with code 1 if the accuracy of the labelled rows, or the rank correlation with ratings, is "
            "below, for CI.",
            min=0,
            max=1,
            metavar="SHARE",
        ),
    ] = None,
    min_win_rate: Annotated[
        str,
        option(
            "Output",
            "Exit with code 1 if the source of this name wins a lower share of its rows, for CI.",
            metavar="NAME=SHARE",
        ),
    ] = "",
    junit: JunitOption = None,
    retry_malformed: Annotated[
        bool, option("Output", "Judge only rows without a verdict again.", "--retry-malformed")
    ] = False,
    min_decided: Annotated[
        float | None,
        option(
            "Output",
            "Exit with code 1 if programs decided a lower share of the rows, for CI.",
            min=0,
            max=1,
            metavar="SHARE",
            hidden=True,
        ),
    ] = None,
    answers: Annotated[
        list[str] | None, option("Rows", "The answers of one model, in place of FILE.", metavar="NAME=FILE")
    ] = None,
    input_format: Annotated[
        Literal["jsonl", "json", "csv", "parquet"] | None,
        option("Rows", "Format of the file.  [default: detected]", hidden=True),
    ] = None,
    *,
    reading: RowsOptions,
    options: RunOptions,
) -> None:
    """Judge a file of rows. The same command resumes an interrupted run.

    Exit codes: 0 all rows judged, 1 some failed, none got a verdict, or a share is below its --min option, 2
    usage or no rows, 130 interrupted. A verdict that is left open is a result.
    """
    if retry_malformed and options.overwrite:
        raise ValueError("--retry-malformed and --overwrite exclude each other")
    plan = options.plan(reading.columns, reading.meaning)
    options.check(plan.kind)
    if bool(file) == bool(answers):
        raise ValueError("give a FILE of rows, or --answers NAME=FILE for each of several models")
    target = output_file(output, file or "answers", "verdicts", streamed=True)
    if answers:
        together = options.pointwise or options.listwise
        source, columns = joined_answers(reading, answers, together=together)
        plan = replace(plan, columns=columns)
    else:
        source = reading.open(file, input_format)
    rows = InspectedRows(
        source, plan.columns, plan.labels, empty_loses=options.empty_loses, thinking=options.judges_thinking
    )
    refuse_input(target, rows)
    if junit and target == STANDARD_OUTPUT:
        raise ValueError("--junit reads the result file: leave out --output -")
    for note in rows.inspect():
        say(note)
    run = BatchRun(
        command="judge",
        options=options,
        plan=replace(plan, labels=rows.meaning, thinking=options.judges_thinking),
        output=target,
        rows=rows,
        as_json=as_json,
        min_accuracy=min_accuracy,
        min_win_rate=least_wins(min_win_rate) if min_win_rate else None,
        retry_malformed=retry_malformed,
        min_decided=min_decided,
    )
    judged = run.run()
    for note in rows.left():
        say(note)
    if junit:
        from tirjudge.evaluation.junit import write_junit
        from tirjudge.evaluation.stored_outputs.reading import open_results

        write_junit(junit, open_results(target))
    raise typer.Exit(0 if judged else SOME_FAILED)


@examples("tirjudge formats", "tirjudge formats --json")
def formats(
    as_json: Annotated[bool, option("Output", "Print the formats as JSON.", "--json")] = False,
) -> None:
    """List the judge formats that `--format` accepts."""
    cards = judge_cards()
    if as_json:
        found = {name: {"options": sorted(environment_options(name))} for name in environment_names()}
        print(json.dumps({name: {**one, **_card(cards.get(name))} for name, one in found.items()}, indent=2))
        return
    for name in environment_names():
        about = {"options": ", ".join(sorted(environment_options(name)))}
        if name in cards:
            about |= _card(cards[name])
        print(printable(name))
        for heading in ("sees", "answers", "reward", "from", "options"):
            if about.get(heading):
                print(f"  {heading:<9}{printable(about[heading].replace('`', ''))}")


def _card(card: JudgeCard | None) -> dict[str, str]:
    if card is None:
        return {}
    return {"sees": card.views, "answers": card.answer, "reward": card.reward, "from": card.source}
