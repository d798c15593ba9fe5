"""Runs of the real judge over the sets: `tirjudge judge` in a process of its own, or under a condition.

Conditions change what the judge reads of its programs: `withheld` empties every output, `swapped` reverses
the counts, so that a judge who follows its programs chooses the other response.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from research.smol.sources import Fields, read_lines
from research.smol.summary import counts
from tests.command import TIRJUDGE
from tirjudge.data.sources import open_rows
from tirjudge.generation.base import Generator
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, Failure, Plan, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.judging.questions import Kind
from tirjudge.storage.result_file import ResultFile
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status

KINDS: Mapping[str, Kind] = {"lists": "listwise", "pointwise": "pointwise"}
"""Sets that are not judged as pairs."""
BOTH_ORDERS = ("both-orders",)
"""Sets whose pairs are judged in both orders."""


def _withhold(text: str) -> str:
    return ""


def _swap(text: str) -> str:
    """Return an output with its counts in reverse order."""
    places = counts(text)
    numbers = [text[start:end] for start, end in places]
    # From the end, so that the places before stay valid.
    for (start, end), number in zip(reversed(places), numbers, strict=True):
        text = text[:start] + number + text[end:]
    return text


CONDITIONS: Mapping[str, Callable[[str], str]] = {"withheld": _withhold, "swapped": _swap, "shown": str}
"""Changes of a program's output by name; `shown` changes nothing and is the control of the others."""


class ChangedOutputs:
    """A sandbox that changes the standard output of every program that ends by itself."""

    def __init__(self, inner: Sandbox, change: Callable[[str], str]) -> None:
        self._inner, self._change = inner, change
        self.capacity = inner.capacity

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        done = await self._inner.run(program, limits)
        return replace(done, stdout=self._change(done.stdout)) if done.status is Status.OK else done


class _Failures:
    """Shows only failures."""

    def judged(self, row: Mapping[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None:
        print(f"{failure.where}: {failure.reason}", flush=True)


def options_of(name: str) -> dict[str, Any]:
    """Return the judge's options for a set; guesses count, as in every stored figure."""
    return {"undecided": "guess"} | ({"order": "both"} if name in BOTH_ORDERS else {})


def command(
    name: str, file: Path, output: Path, model: str, rows: int | None, further: Sequence[str]
) -> list[str]:
    """Return the `tirjudge judge` command for a set; without a model the embedded one judges."""
    words = ["judge", str(file), f"--{KINDS.get(name, 'pairwise')}", "--output", str(output)]
    words += ["--model", model] if model else []
    words += ["--limit", str(rows)] if rows else []
    for option, value in options_of(name).items():
        words += [f"--{option}", str(value)]
    return [*words, *further]


def run(words: Sequence[str]) -> int:
    """Run `tirjudge` with these words, resuming an interrupted run; return its exit code."""
    return subprocess.run([TIRJUDGE, *words], check=False).returncode


async def run_under(
    condition: str,
    name: str,
    file: Path,
    output: Path,
    *,
    rows: int | None = None,
    options: Mapping[str, Any] = {},
    generator: Generator | None = None,
) -> None:
    """Judge a set in this process with changed outputs; the result file is that of `tirjudge judge`.

    A `generator` replaces the model of the options.
    """
    config = JudgeOptions(**{**options_of(name), **options})
    kind = KINDS.get(name, "pairwise")
    settings = {**config.model_dump(), "condition": condition, "format": kind}
    sandbox = ChangedOutputs(config.closed_sandbox(), CONDITIONS[condition])
    plan = Plan(kind=kind, limit=rows, concurrency=config.concurrency)
    with ResultFile(output, settings) as results:
        async with JudgeEngine(config, sandbox=sandbox, generator=generator) as engine:
            await BatchRunner(EngineRowJudge(engine).row, ResultSink(results, _Failures()), plan).run(
                open_rows(str(file))
            )


def judge_set(
    name: str,
    file: Path,
    output: Path,
    model: str,
    *,
    rows: int | None = None,
    condition: str = "",
    further: Sequence[str] = (),
    options: Mapping[str, Any] = {},
) -> str:
    """Judge a set and return the command that did it; `further` and `options` are the judge's own options."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if not condition:
        words = command(name, file, output, model, rows, further)
        code = run(words)
        # 1 means that single rows failed, which count as wrong; with any other error the rest is missing.
        if code not in (0, 1) or not output.exists():
            raise SystemExit(f"{file}: not judged, since `tirjudge judge` ended with exit code {code}")
        return " ".join(["tirjudge", *words])
    given = {**options, **({"model": model} if model else {})}
    asyncio.run(run_under(condition, name, file, output, rows=rows, options=given))
    return f"research.smol.results --condition {condition}: {name}"


def judged_rows(file: Path, output: Path, rows: int | None) -> list[tuple[Fields, Fields | None]]:
    """Return each row of a set with its line of the result file, None for a row that failed."""
    lines = {line["id"]: line for line in read_lines(output)} if output.exists() else {}
    return [(row, lines.get(str(row["id"]))) for row in read_lines(file)[:rows]]
