"""A judge's run over a benchmark, and the list of benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from tirjudge.cli.batch_run import BatchRun
from tirjudge.cli.options import RunnerOptions
from tirjudge.cli.output import output_file, say
from tirjudge.console_text import printable
from tirjudge.data.inspection import InspectedRows
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.benchmarks.base import Benchmark
from tirjudge.evaluation.benchmarks.rows import BenchmarkRows, missing
from tirjudge.judging.config import JudgeConfig
from tirjudge.judging.engine import Kind
from tirjudge_environments import JudgeTask, Message
from tirjudge_environments.registry import environment_options, open_environment

_PAIR = JudgeTask(id="pair", prompt=(Message("user", "?"),), candidates=("a", "b"))


def run_benchmark(
    name: str,
    options: RunnerOptions,
    *,
    parts: Sequence[str],
    data: Iterable[str],
    output: Path | None,
    quiet: bool = False,
) -> tuple[Path, bool]:
    """Judge a benchmark's rows; return the result file, and whether it has every row.

    `quiet` prints the summary of the run to standard error.
    """
    target = output_file(output, name, "verdicts")
    benchmark = open_benchmark(name)
    chosen = [part.name for part in benchmark.chosen_parts(parts)]
    plan = options.plan()
    if benchmark.format and not (options.format or plan.kind):
        options = options.model_copy(update={"format": benchmark.format})
    options = _ordered(options, plan.kind, benchmark)
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


def parts_of(benchmark: Benchmark, parts: Sequence[str], data: Iterable[str]) -> dict[str, str]:
    """Return the file of each chosen part, from `[PART=]FILE`; raises ValueError for an unknown part."""
    return _by_part(data, [part.name for part in benchmark.chosen_parts(parts)])


def print_benchmarks(*, as_json: bool = False) -> None:
    """Print the rows, protocols and licence of each benchmark, and what is missing to run it."""
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


def _ordered(options: RunnerOptions, kind: Kind | None, benchmark: Benchmark) -> RunnerOptions:
    """Return the options with the order of the benchmark's own rule, unless one was chosen."""
    if options.order is None and "order" in environment_options(_format(options, kind)):
        return options.model_copy(update={"order": benchmark.order})
    return options


def _judges_alone(config: JudgeConfig, kind: Kind | None) -> bool:
    views = open_environment(_format(config, kind), **config.options).views
    try:
        return all(len(view.order) == 1 for view in views(_PAIR))
    except ValueError:  # the format takes only lists
        return False


def _format(config: JudgeConfig, kind: Kind | None) -> str:
    return config.format or f"tir-{kind or 'pairwise'}"
