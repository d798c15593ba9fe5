"""`tirjudge eval`: how good a judge is, under named protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.benchmark_run import print_benchmarks, run_benchmark
from tirjudge.cli.judge_options import JudgeOptions, taking
from tirjudge.cli.one_line import SOME_FAILED, one_line_errors
from tirjudge.cli.published_tables import print_published
from tirjudge.cli.rationales import with_matchings
from tirjudge.cli.score_tables import print_protocols
from tirjudge.cli.scored import Records, compare_runs, score_run
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.protocols import all_protocols
from tirjudge.evaluation.stored_outputs import Replay, open_replay

OURS = "tirjudge"
"""The format of our own result files."""
SAMPLED = ("self-consistency", "mean-score")
"""What several samples of each row can be scored under besides."""


@taking
def evaluate(
    benchmark: Annotated[
        str, typer.Argument(metavar="[BENCHMARK]", help="Judge its rows, then score them.")
    ] = "",
    listing: Annotated[bool, typer.Option("--list", help="List the benchmarks.")] = False,
    part: Annotated[
        list[str] | None,
        typer.Option(help="Of the benchmark, as often as needed. Default: its standard ones."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[PART=]FILE", help="Rows in place of the hub's: a file or a folder."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Result file; by default BENCHMARK.verdicts.jsonl in this folder.")
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep completions, and ask nothing twice.")
    ] = True,
    replay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score stored outputs, ours or others', anew.")
    ] = None,
    comparison: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="FILE FILE", help="Two runs over the same rows."),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="By name, as often as needed. Default: the format's own.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Another file that holds the labels, joined by idx, pair_id or id.")
    ] = None,
    replay_format: Annotated[str, typer.Option(help="Instead of telling by the first row.")] = "",
    protocols: Annotated[bool, typer.Option("--protocols", help="List the protocols.")] = False,
    published: Annotated[
        str, typer.Option(metavar="BENCHMARK", help="List what the papers print on a benchmark.")
    ] = "",
    meta_judge: Annotated[
        str, typer.Option(metavar="MODEL", help="Who matches reasons, for rationale-consistency.")
    ] = "",
    meta_judge_url: Annotated[str, typer.Option(help="Its OpenAI-compatible endpoint.")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers as JSON too.")
    ] = None,
    *,
    options: JudgeOptions,
) -> None:
    """Judge a benchmark, score a stored run, or compare two.

    All under named protocols. Exit codes: 0 done, 1 some rows failed or a protocol that was asked for cannot
    score them, 2 usage, 130 interrupted.
    """
    with one_line_errors("eval"):
        if listing:
            return print_benchmarks()
        if protocols:
            return print_protocols([one.card for one in all_protocols()])
        if published:
            return print_published(published)
        if bool(benchmark) + (replay is not None) + (comparison is not None) != 1:
            raise ValueError(
                "give one of BENCHMARK, --replay FILE, --compare FILE FILE (--list and --protocols list what "
                "there is)"
            )
        whole = True
        if benchmark:
            replay, whole = run_benchmark(
                benchmark, options, parts=part or (), data=data or (), output=output, cache=cache
            )
            if not replay.stat().st_size:
                raise typer.Exit(0 if whole else SOME_FAILED)
        paths = [replay] if replay is not None else list(comparison or ())
        runs = [open_replay(path, labels=labels, format=replay_format) for path in paths]
        runs = [with_matchings(run, meta_judge, meta_judge_url) for run in runs]
        records, unfit = _scored(runs, protocol or [], options.seed)
        if json_file is not None:
            json_file.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
        raise typer.Exit(SOME_FAILED if unfit or not whole else 0)


def _scored(runs: list[Replay], named: list[str], seed: int) -> tuple[Records, bool]:
    """Records, and whether a protocol that was named did not fit."""
    names = named or _protocols(runs[0])
    if len(runs) == 1:
        return score_run(runs[0], names, named=bool(named), seed=seed)
    return compare_runs(runs, names, named=bool(named), seed=seed)


def _protocols(run: Replay) -> tuple[str, ...]:
    """Of the benchmark that we ran, with what every run tells; else of the file's format."""
    if run.format.name != OURS or run.benchmark not in benchmark_names():
        return tuple(run.format.protocols)
    sampled = any(vote.sample for vote in next(iter(run)).votes)
    return (*open_benchmark(run.benchmark).protocols, *(SAMPLED if sampled else ()), "errors", "cost")
