"""A judge over a benchmark, scored under its protocols; and the list of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tirjudge.cli.batch_run import BatchRun
from tirjudge.cli.judge_options import JudgeOptions
from tirjudge.console_text import printable
from tirjudge.evaluation.benchmarks import benchmark_names
from tirjudge.evaluation.benchmarks import open_benchmark
from tirjudge.evaluation.benchmarks.base import Benchmark
from tirjudge.evaluation.benchmarks.rows import BenchmarkRows
from tirjudge.evaluation.benchmarks.rows import missing
from tirjudge.judging import JudgeConfig
from tirjudge.judging import Kind
from tirjudge_environments import JudgeTask
from tirjudge_environments import Message
from tirjudge_environments.registry import environment_options
from tirjudge_environments.registry import open_environment

_PAIR = JudgeTask(id="pair", prompt=(Message("user", "?"),), candidates=("a", "b"))


def run_benchmark(
    name: str,
    options: JudgeOptions,
    *,
    parts: Sequence[str],
    data: Iterable[str],
    output: Path | None,
    cache: bool,
) -> tuple[Path, bool]:
    """Judge a benchmark's rows; returns the result file, and whether it holds every row."""
    benchmark = open_benchmark(name)
    chosen = [part.name for part in benchmark.chosen_parts(parts)]
    config, plan = options.config(), options.plan()
    if benchmark.format and not (config.format or plan.kind):
        config = config.model_copy(update={"format": benchmark.format})
    config = _ordered(config, plan.kind, benchmark)
    alone = _judges_alone(config, plan.kind)
    run = BatchRun(
        command="eval",
        rows=BenchmarkRows(benchmark, chosen, _by_part(data, chosen), alone=alone),
        config=config,
        plan=plan,
        output=output or Path(f"{name}.verdicts.jsonl"),
        price=options.price(),
        max_cost=options.max_cost,
        cache=cache,
        overwrite=options.overwrite,
        settings={"benchmark": name, "parts": chosen},
    )
    return run.output, run.run()


def print_benchmarks() -> None:
    """Each one's rows, protocols, licence, and what is missing to run it."""
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
        + ("" if part in standard else ", only when named")
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
    """`PART=FILE`, or a file alone where one part is judged."""
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


def _ordered(config: JudgeConfig, kind: Kind | None, benchmark: Benchmark) -> JudgeConfig:
    """With the orders that the benchmark's own rule asks for, where none was chosen."""
    if config.order is None and "order" in environment_options(_format(config, kind)):
        return config.model_copy(update={"order": benchmark.order})
    return config


def _judges_alone(config: JudgeConfig, kind: Kind | None) -> bool:
    views = open_environment(_format(config, kind), **config.options).views
    try:
        return all(len(view.order) == 1 for view in views(_PAIR))
    except ValueError:  # a format for lists
        return False


def _format(config: JudgeConfig, kind: Kind | None) -> str:
    return config.format or f"tir-{kind or 'pairwise'}"
