"""`tirjudge eval`: judge a benchmark and score the verdicts under its protocols."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.cli.options import RunOptions, takes_options
from tirjudge.cli.output import SOME_FAILED, examples, option, output_file, say
from tirjudge.cli.score_options import MetaJudgeOption, MetaJudgeUrlOption, ScoreOutput
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.judging.options import OF_RUNS, JudgeOptions
from tirjudge.judging.questions import Kind, environment_name, format_for
from tirjudge_environments import JudgeTask, Message
from tirjudge_environments.registry import environment_options, open_environment

if TYPE_CHECKING:  # the help loads neither the benchmarks nor what judges and scores
    from tirjudge.evaluation.benchmarks.base import Benchmark

_PAIR = JudgeTask(id="pair", prompt=(Message("user", "?"),), candidates=("a", "b"))


@examples(
    "tirjudge eval judgebench --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1",
    "tirjudge eval rewardbench --data rewardbench.parquet --limit 100",
)
@takes_options("eval", without=(*OF_RUNS, "name_variables"))
def evaluate(
    benchmark: Annotated[
        str | None, typer.Argument(metavar="BENCHMARK", help="Judge its rows, then score them.")
    ] = None,
    listing: Annotated[bool, option("Output", "List the benchmarks.", "--list")] = False,
    part: Annotated[
        list[str] | None,
        option("Rows", "Part of the benchmark. Repeatable.  [default: the standard parts]", metavar="PART"),
    ] = None,
    data: Annotated[
        list[str] | None,
        option("Rows", "File or folder of rows that replaces the hub's. Repeatable.", metavar="[PART=]FILE"),
    ] = None,
    output: Annotated[
        Path | None, option("Output", "Result file.  [default: BENCHMARK.verdicts.jsonl in this folder]")
    ] = None,
    meta_judge: MetaJudgeOption = "",
    meta_judge_url: MetaJudgeUrlOption = "",
    *,
    shown: ScoreOutput,
    options: RunOptions,
) -> None:
    """Judge a benchmark and score the verdicts. The same command resumes an interrupted run.

    Prints one line to quote for each protocol. Exit codes: 0 done, 1 some rows failed, none got a verdict or
    one of several requested protocols cannot score them, 2 usage, or no protocol can score them, 130
    interrupted.
    """
    from tirjudge.cli.score_output import print_scored, with_matchings
    from tirjudge.evaluation.stored_outputs.reading import open_replay

    shown.check()
    if listing:
        return print_benchmarks(as_json=shown.as_json)
    if benchmark is None:
        raise ValueError("give a BENCHMARK (--list lists them; tirjudge score scores stored verdicts)")
    if "cache" not in options.model_fields_set:
        # Benchmarks are run again and again, often with one option changed.
        options = options.model_copy(update={"cache": True})
    options = options.model_copy(
        update={"judge_empty": True, "judge_thinking": True, "name_variables": False}
    )
    if options.undecided is None:
        # Published protocols count the verdicts of a judge, guesses included.
        options = options.model_copy(update={"undecided": "guess"})
    quiet = shown.as_json or bool(shown.table)
    result, whole = run_benchmark(
        benchmark, options, parts=part or (), data=data or (), output=output, quiet=quiet
    )
    if not result.stat().st_size:
        raise typer.Exit(0 if whole else SOME_FAILED)
    run = with_matchings(
        open_replay(result), meta_judge, meta_judge_url, timeout=options.timeout, retries=options.retries
    )
    fits = print_scored("eval", run, shown, seed=options.seed)
    raise typer.Exit(0 if fits and whole else SOME_FAILED)


def run_benchmark(
    name: str,
    options: RunOptions,
    *,
    parts: Sequence[str],
    data: Iterable[str],
    output: Path | None,
    quiet: bool = False,
) -> tuple[Path, bool]:
    """Judge a benchmark's rows; return the result file, and whether it has every row.

    `quiet` prints the summary of the run to standard error.
    """
    from tirjudge.cli.judge import BatchRun
    from tirjudge.evaluation.benchmarks import open_benchmark
    from tirjudge.evaluation.benchmarks.base import BenchmarkRows

    target = output_file(output, name, "verdicts")
    benchmark = open_benchmark(name)
    chosen = [part.name for part in benchmark.chosen_parts(parts)]
    plan = options.plan()
    options = options.model_copy(update={"untrained": "tir"})  # as published judges, which read first
    if benchmark.format and not (options.format or plan.kind):
        options = options.model_copy(update={"format": benchmark.format})
    options = _ordered(options, plan.kind, benchmark)
    if "boundary" in environment_options(_format(options, plan.kind)):
        # Published judges read the texts as they are.
        options = options.model_copy(update={"options": {"boundary": False, **options.options}})
    options.check(plan.kind)
    alone = _judges_alone(options, plan.kind)
    given = _by_part(data, chosen)
    rows = BenchmarkRows(benchmark, chosen, given, alone=alone)
    if given:
        for note in InspectedRows(rows, plan.columns, plan.labels).inspect():
            say(note)
    run = BatchRun(
        command="eval",
        rows=rows,
        options=options,
        plan=plan,
        output=target,
        settings={"benchmark": name, "parts": chosen},
        quiet=quiet,
    )
    return run.output, run.run()


def print_benchmarks(*, as_json: bool = False) -> None:
    """Print the rows, protocols and licence of each benchmark, and what is missing to run it."""
    from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark

    if as_json:
        abouts = {name: dict(_about(open_benchmark(name))) for name in benchmark_names()}
        print(json.dumps({name: {"about": one.pop(""), **one} for name, one in abouts.items()}, indent=2))
        return
    for name in benchmark_names():
        benchmark = open_benchmark(name)
        print(printable(name))
        for heading, text in _about(benchmark):
            print(f"  {heading:<10}{printable(text)}")


def _about(benchmark: Benchmark) -> list[tuple[str, str]]:
    from tirjudge.evaluation.benchmarks.base import missing

    standard = benchmark.chosen_parts()
    parts = [
        f"{part.name} {part.rows if part.rows is not None else '?'}"
        + (f" ({part.hub}{f', {part.config}' if part.config else ''})" if part.hub else "")
        + ("" if part in standard else ", only if named")
        for part in benchmark.parts
    ]
    lacking = [needed for part in benchmark.parts if (needed := missing(part))]
    if any(part.hub for part in benchmark.parts) and find_spec("datasets") is None:
        lacking.append("the extra data: pip install 'tirjudge[data]'")
    return [
        ("", benchmark.about),
        ("rows", "; ".join(parts)),
        ("protocols", ", ".join(benchmark.protocols)),
        ("licence", benchmark.licence),
        ("columns", "; ".join(f"{column}: {meaning}" for column, meaning in benchmark.columns.items())),
        ("missing", "; ".join(lacking) or "nothing"),
    ]


def _by_part(data: Iterable[str], parts: Sequence[str]) -> dict[str, str]:
    """Return the file of each part, from `PART=FILE`, or only a file if one part is judged."""
    given: dict[str, str] = {}
    for text in data:
        part, equals, path = text.partition("=")
        if equals and part in parts:
            given[part] = path
        elif len(parts) == 1 and not Path(text).exists() and equals:
            raise ValueError(f"--data {text!r}: the part is {parts[0]}")
        elif len(parts) == 1:
            given[parts[0]] = text
        else:
            raise ValueError(f"--data {text!r}: write PART=FILE, PART being one of {', '.join(parts)}")
    return given


def _ordered(options: RunOptions, kind: Kind | None, benchmark: Benchmark) -> RunOptions:
    """Return the options with the order of the benchmark's own rule, unless one was chosen."""
    if options.order is None and "order" in environment_options(_format(options, kind)):
        return options.model_copy(update={"order": benchmark.order})
    return options


def _judges_alone(config: JudgeOptions, kind: Kind | None) -> bool:
    views = open_environment(_format(config, kind), **config.format_options).views
    try:
        return all(len(view.order) == 1 for view in views(_PAIR))
    except ValueError:  # the format takes only lists
        return False


def _format(config: JudgeOptions, kind: Kind | None) -> str:
    return environment_name(format_for(config.format, kind or "pairwise"))
