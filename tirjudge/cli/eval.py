"""`tirjudge eval`: judge a benchmark, score a stored run or compare two, under named protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.cli.benchmark_run import print_benchmarks, run_benchmark
from tirjudge.cli.calibration import CalibrationOptions, calibrated, show
from tirjudge.cli.eval_run import Shown, scored
from tirjudge.cli.options import RunnerOptions, takes_options
from tirjudge.cli.output import SOME_FAILED, examples
from tirjudge.cli.replays import ReplayOptions, split_words, with_matchings
from tirjudge.cli.tables import print_protocols, print_published
from tirjudge.evaluation.protocols import all_protocols
from tirjudge.judging.views import Confidence


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
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="LABELS",
            help="File of people's labels: measure agreement with them, variance, and risk against coverage.",
            rich_help_panel="Calibration",
        ),
    ] = None,
    confidence: Annotated[
        Confidence | None,
        typer.Option(
            help="Confidence that orders the verdicts.  [default: vote-share]",
            rich_help_panel="Calibration",
        ),
    ] = None,
    target_risk: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Choose a threshold for this risk on one half of the rows, and verify it on the other.",
            rich_help_panel="Calibration",
        ),
    ] = None,
    rerun: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A further run over the same rows, as another sample of each. Repeatable.",
            rich_help_panel="Calibration",
        ),
    ] = None,
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
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Print every figure, its definition and counts, and published figures.",
            rich_help_panel="Output",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the numbers as JSON, and nothing else.", rich_help_panel="Output"),
    ] = False,
    *,
    options: RunnerOptions,
) -> None:
    """Judge a benchmark, score a stored run, or compare two.

    Prints one line to quote for each protocol. Exit codes: 0 done, 1 some rows failed, none got a verdict,
    a requested protocol cannot score them or a target risk is not met, 2 usage, 130 interrupted.
    """
    if listing:
        return print_benchmarks(as_json=as_json)
    if protocols:
        return print_protocols([one.card for one in all_protocols()], as_json=as_json)
    if published:
        return print_published(published, as_json=as_json)
    files, places = split_words(words or [], columns=bool(column))
    if as_json and any(word.endswith(".json") and not Path(word).exists() for word in files):
        raise ValueError("--json prints to standard output: write --json > FILE")
    # A glob that the shell has expanded leaves all files but the first among the words.
    paths = [*replay, *map(Path, files)] if replay else []
    benchmarks = [] if replay else files
    if len(benchmarks) + bool(replay) + (comparison is not None) != 1:
        raise ValueError(
            "give one of BENCHMARK, --replay FILE, --compare FILE FILE (--list lists the benchmarks, "
            "--protocols the protocols)"
        )
    if calibrate is None and (confidence is not None or target_risk is not None or rerun):
        raise ValueError("--confidence, --target-risk and --rerun belong to --calibrate LABELS")
    if calibrate is not None and (comparison is not None or protocol):
        raise ValueError("--calibrate measures one run under no protocol: leave out --compare and --protocol")
    options_of_files = ReplayOptions.parse(
        columns=[*(column or ()), *places],
        labels=labels or (),
        swapped=swapped,
        format=replay_format,
        duplicates=duplicates,
        calibrates=calibrate is not None,
    )
    whole = True
    for benchmark in benchmarks:
        if "cache" not in options.model_fields_set:
            # Benchmarks are run again and again, often with one option changed.
            options = options.model_copy(update={"cache": True})
        result, whole = run_benchmark(
            benchmark, options, parts=part or (), data=data or (), output=output, quiet=as_json
        )
        if not result.stat().st_size:
            raise typer.Exit(0 if whole else SOME_FAILED)
        paths = [result]
    if calibrate is not None:
        measured = calibrated(
            options_of_files.open(paths),
            CalibrationOptions(
                labels=calibrate,
                confidence=confidence or "vote-share",
                target_risk=target_risk,
                reruns=[options_of_files.open([one]) for one in rerun or ()],
                meaning=options_of_files.meaning,
                seed=options.seed,
            ),
            options,
        )
        show(measured, full=full, as_json=as_json)
        raise typer.Exit(0 if measured.reached and whole else SOME_FAILED)
    runs = [options_of_files.open(run) for run in ([paths] if paths else [[one] for one in comparison or ()])]
    runs = [with_matchings(run, meta_judge, meta_judge_url, options) for run in runs]
    shown = Shown.NOTHING if as_json else Shown.FULL if full else Shown.LINES
    records, unfit = scored(runs, protocol or [], options.seed, shown)
    if as_json:
        print(json.dumps(records, indent=2))
    raise typer.Exit(SOME_FAILED if unfit or not whole else 0)
