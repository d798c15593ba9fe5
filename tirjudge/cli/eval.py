"""`tirjudge eval`: judge a benchmark, score a stored run or compare two, under named protocols."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.benchmark_run import print_benchmarks, run_benchmark
from tirjudge.cli.errors import SOME_FAILED, say
from tirjudge.cli.help import examples
from tirjudge.cli.options import RowOptions, takes_options
from tirjudge.cli.replays import ReplayOptions, split_words
from tirjudge.cli.tables import (
    comparable,
    comparison_record,
    print_comparable,
    print_comparison,
    print_incomparable,
    print_others,
    print_protocols,
    print_published,
    print_score,
    published_record,
    score_record,
)
from tirjudge.data.rows import STANDARD_INPUT
from tirjudge.evaluation.base import ScoringProtocol, Unscorable
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.protocols import all_protocols, open_protocol
from tirjudge.evaluation.rationales import Extras, KeptAnswers, matched
from tirjudge.evaluation.run_checks import check_labels, missing_rows
from tirjudge.evaluation.scoring import compare, score
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.judging.meta_judge import MetaJudgeConfig
from tirjudge.rollout.reward_questions import AnswerStore
from tirjudge.storage.run_folder import JsonObject, read_lines

TIRJUDGE = "tirjudge"
"""The format of tirjudge's own result files."""
SAMPLED = ("self-consistency", "mean-score")
"""Further protocols for runs with several samples of each row."""
Records = list[dict[str, object]]


@examples(
    "tirjudge eval judgebench --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge eval --replay judgebench.verdicts.jsonl --protocol both-orders",
    "tirjudge eval --compare before.jsonl after.jsonl",
)
@takes_options("eval")
def evaluate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BENCHMARK]",
            help="Judge its rows, then score them. After --replay: more files of the same run.",
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List the benchmarks.", rich_help_panel="Output")
    ] = False,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Part of the benchmark. Repeatable.  [default: the standard parts]",
            rich_help_panel="Rows",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PART=]FILE",
            help="File or folder of rows that replaces the hub's. Repeatable.",
            rich_help_panel="Rows",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Result file.  [default: BENCHMARK.verdicts.jsonl in this folder]",
            rich_help_panel="Output",
        ),
    ] = None,
    replay: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Score stored outputs, of tirjudge or others. Several files or a glob are one run, - is "
            "standard input.",
            rich_help_panel="Rows",
        ),
    ] = None,
    comparison: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="FILE FILE",
            help="Compare two runs over the same rows.",
            rich_help_panel="Rows",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROTOCOL",
            help="Protocol to score under. Repeatable.  [default: the format's own]",
            rich_help_panel="Output",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=PLACE",
            help="Place of a part in the rows of any file: prediction, label, score_a, ... Repeatable.",
            rich_help_panel="Rows",
        ),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|VALUE=LETTER,...",
            help="Separate file of labels, joined by idx, pair_id or id; or, with --column, the meaning of "
            "values: 1=A,2=B,0=tie. Once each.",
            rich_help_panel="Rows",
        ),
    ] = None,
    swapped: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="The same rows judged with the responses swapped, with --column.",
            rich_help_panel="Rows",
        ),
    ] = "",
    duplicates: Annotated[
        str,
        typer.Option(
            metavar="refuse|first",
            help="Several rows with the same id: refuse them, or count only the first.",
            rich_help_panel="Rows",
        ),
    ] = "refuse",
    replay_format: Annotated[
        str,
        typer.Option(
            help="Format of the stored outputs.  [default: detected from the first row]",
            rich_help_panel="Rows",
        ),
    ] = "",
    protocols: Annotated[
        bool, typer.Option("--protocols", help="List the protocols.", rich_help_panel="Output")
    ] = False,
    published: Annotated[
        str,
        typer.Option(
            metavar="BENCHMARK", help="List published figures on a benchmark.", rich_help_panel="Output"
        ),
    ] = "",
    meta_judge: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Model that matches reasons, for rationale-consistency.",
            rich_help_panel="Model",
        ),
    ] = "",
    meta_judge_url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="OpenAI-compatible endpoint of the meta judge.", rich_help_panel="Model"
        ),
    ] = "",
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", help="Also write the numbers as JSON.", rich_help_panel="Output"
        ),
    ] = None,
    *,
    options: RowOptions,
) -> None:
    """Judge a benchmark, score a stored run, or compare two.

    Scores are under named protocols. Exit codes: 0 done, 1 some rows failed or a requested protocol cannot
    score them, 2 usage, 130 interrupted.
    """
    if listing:
        return print_benchmarks()
    if protocols:
        return print_protocols([one.card for one in all_protocols()])
    if published:
        return print_published(published)
    files, places = split_words(words or [], columns=bool(column))
    # A glob that the shell has expanded leaves all files but the first among the words.
    paths = [*replay, *map(Path, files)] if replay else []
    benchmarks = [] if replay else files
    if len(benchmarks) + bool(replay) + (comparison is not None) != 1:
        raise ValueError(
            "give one of BENCHMARK, --replay FILE, --compare FILE FILE (--list lists the benchmarks, "
            "--protocols the protocols)"
        )
    options_of_files = ReplayOptions.parse(
        columns=[*(column or ()), *places],
        labels=labels or (),
        swapped=swapped,
        format=replay_format,
        duplicates=duplicates,
    )
    whole = True
    for benchmark in benchmarks:
        if "cache" not in options.model_fields_set:
            # Benchmarks are run again and again, often with one option changed.
            options = options.model_copy(update={"cache": True})
        result, whole = run_benchmark(benchmark, options, parts=part or (), data=data or (), output=output)
        if not result.stat().st_size:
            raise typer.Exit(0 if whole else SOME_FAILED)
        paths = [result]
    runs = [options_of_files.open(run) for run in ([paths] if paths else [[one] for one in comparison or ()])]
    runs = [_with_matchings(run, meta_judge, meta_judge_url) for run in runs]
    records, unfit = _scored(runs, protocol or [], options.seed)
    if json_file is not None:
        json_file.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    raise typer.Exit(SOME_FAILED if unfit or not whole else 0)


def _scored(runs: list[Replay], named: list[str], seed: int) -> tuple[Records, bool]:
    """Return the records, and whether a named protocol could not score the rows."""
    names = named or _protocols(runs[0])
    if len(runs) == 1:
        return _score_run(runs[0], names, named=bool(named), seed=seed)
    return _compare_runs(runs, names, named=bool(named), seed=seed)


def _protocols(run: Replay) -> tuple[str, ...]:
    """Return the protocols of the benchmark and those for every run, or else of the file's format."""
    if run.format.name != TIRJUDGE or run.benchmark not in benchmark_names():
        return tuple(run.format.protocols)
    sampled = any(vote.sample for vote in next(iter(run)).votes)
    return (*open_benchmark(run.benchmark).protocols, *(SAMPLED if sampled else ()), "errors", "cost")


def _score_run(run: Replay, names: Sequence[str], *, named: bool, seed: int = 0) -> tuple[Records, bool]:
    """Print a run under each protocol; return the records, and whether a named protocol did not fit.

    Protocols that were not `named` are shown only if they fit. Raises ValueError for an unknown name, for
    unreadable rows, and when no protocol fits.
    """
    records: Records = []
    unfit = []
    lacking: str | None = None
    for protocol in _distinct(names):
        try:
            scored = score(protocol, run, seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        found = comparable(scored, run.benchmark)
        print_score(scored)
        if found and lacking is None:
            lacking = missing_rows(run, run.benchmark)
        record = score_record(scored)
        if found and lacking:
            print_incomparable(lacking, run.benchmark)
            record["not_comparable"], found = lacking, []
        print_comparable(scored, found)
        records.append(record | {"published": [published_record(one) for one in found]})
    _say_unfit(unfit, named=named, some=bool(records))
    if run.dropped:
        say(f"tirjudge eval: {run.dropped} rows with an id that occurred before are not counted")
    print_others(run.benchmark, [str(record["protocol"]) for record in records])
    return records, named and bool(unfit)


def _compare_runs(
    runs: Sequence[Replay], names: Sequence[str], *, named: bool, seed: int = 0
) -> tuple[Records, bool]:
    """Print two runs side by side under each protocol; return as `_score_run` does."""
    records: Records = []
    unfit = []
    check_labels(runs[0], runs[1], (runs[0].name, runs[1].name))
    for protocol in _distinct(names):
        try:
            first, second = (protocol.units(run) for run in runs)
            compared = compare(protocol, first, second, seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        print_comparison(compared, [run.name for run in runs])
        records.append(comparison_record(compared))
    _say_unfit(unfit, named=named, some=bool(records))
    return records, named and bool(unfit)


def _distinct(names: Sequence[str]) -> Iterable[ScoringProtocol]:
    """Return each protocol once, even if it was named by several of its names."""
    return {protocol.card.name: protocol for protocol in map(open_protocol, names)}.values()


def _reason(protocol: ScoringProtocol, error: Unscorable) -> str:
    return f"{protocol.card.name}: {error}"


def _say_unfit(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")


def _with_matchings(run: Replay, meta_judge: str, base_url: str) -> Replay:
    """Return the run with people's reasons matched; unchanged if no meta judge was ever asked.

    Answers are stored in RESULTS.asked/ and reused. Raises NotAnswered if the model is not available,
    ValueError for stored answers of several models of which none is named.
    """
    folder = run.path.with_name(f"{run.path.name or STANDARD_INPUT}.asked")
    if meta_judge and len(run.files.paths) > 1:
        raise ValueError("--meta-judge matches the reasons of one file at a time")
    if meta_judge:
        folder.mkdir(exist_ok=True)
        config = MetaJudgeConfig(model=meta_judge, base_url=base_url)
        return run.with_extras(asyncio.run(_ask(run.path, config, folder)))
    kept = folder / "asked.jsonl"
    if not kept.exists():
        return run
    answers = _only_model(list(read_lines(kept)), kept)
    return run.with_extras(asyncio.run(matched(read_lines(run.path), KeptAnswers(answers))))


async def _ask(path: Path, config: MetaJudgeConfig, folder: Path) -> Extras:
    reward_questions = config.open(kept=AnswerStore(folder), say=say)
    try:
        return await matched(read_lines(path), reward_questions)
    finally:
        await reward_questions.close()


def _only_model(rows: list[JsonObject], path: Path) -> dict[str, str]:
    models = sorted({row["model"] for row in rows})
    if len(models) > 1:
        raise ValueError(f"{path} holds answers of {', '.join(models)}: name one with --meta-judge")
    return {row["key"]: row["answer"] for row in rows}
