"""Result files of scripted judges, whose programs run in the real sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tirjudge.data.rows import Row
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.storage.result_file import ResultFile
from tirjudge_environments import By, Context
from tirjudge_sandbox import open_sandbox

FAST = ("--backend-option", "preload=[]")
"""Command-line options of a sandbox that starts without loading numpy and sympy."""


def judge_to(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    script: Callable[[Context], str],
    *,
    texts: bool = True,
    **options: Any,
) -> Path:
    """Judge rows into a result file as `tirjudge judge` does, and return its path."""

    async def judge() -> None:
        # The scripts read the responses before they write a program.
        config = JudgeOptions(**{"untrained": "tir", **options})
        sandbox = open_sandbox("local", preload=()) if config.tools else None
        engine = JudgeEngine(config, generator=ScriptedGenerator(script), sandbox=sandbox)
        with ResultFile(path, {}) as results:
            async with engine:
                batch = BatchRunner(EngineRowJudge(engine, texts=texts).row, ResultSink(results))
                await batch.run(Row(f"rows:{n}", f"row-{n}", dict(row)) for n, row in enumerate(rows))

    asyncio.run(judge())
    return path


def asking(program: str, verdict: Callable[[str], str]) -> Callable[[Context], str]:
    """Return a script that runs a program, and then gives the verdict for its output."""

    def turn(context: Context) -> str:
        shown = [segment.text for segment in context.segments if segment.by is By.SANDBOX]
        if not shown:
            return f"I will measure.\n```python\n{program}\n```\n"
        return f"So <preference>{verdict(shown[-1])}</preference>"

    return turn


def edit(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the rows of a result file."""
    # Not splitlines: a text may contain a line separator of Unicode.
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def programs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for view in row["views"] for one in view["segments"] if one["kind"] == "program"]
