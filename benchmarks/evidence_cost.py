"""Milliseconds a row that evidence costs: rows judged with and without the second run of each program.

A scripted judge runs the programs that the embedded judge wrote for examples/instructions.jsonl, as they are
recorded beside it, so that no model is needed. Runs with and without evidence alternate.

    OMP_NUM_THREADS=1 python -m benchmarks.evidence_cost              # 10 pairs of 200 rows, one at a time
    OMP_NUM_THREADS=1 python -m benchmarks.evidence_cost --at-once 32

Prints, of wall time and of CPU time of all processes, the median of a row without evidence, and the median
difference with its 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.records.recorded_row import read_result_rows
from tirjudge.rollout import as_finished
from tirjudge_environments import By, Context, JudgeTask, Message

EXAMPLES = Path(__file__).parent.parent / "examples" / "instructions.verdicts.jsonl"
TIMES = ("wall", "CPU")


def tasks(count: int) -> tuple[list[JudgeTask], Mapping[str, str]]:
    """Return `count` tasks, and the program for each by the text of its prompt."""
    found, programs = [], {}
    for row, _ in read_result_rows(EXAMPLES):
        source = next(one.text for view in row.views for one in view.segments if one.kind == "program")
        prompt = row.conversation[-1].content
        programs[prompt] = source
        found.append(JudgeTask(id=row.id, prompt=(Message("user", prompt),), candidates=row.shown_responses))
    return list(islice(cycle(found), count)), programs


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def judged(
    given: Sequence[JudgeTask], programs: Mapping[str, str], *, evidence: bool, at_once: int
) -> float:
    """Judge the tasks, and return the seconds from the second task on: the first one opens everything."""

    def turn(context: Context) -> str:
        if any(segment.by is By.SANDBOX for segment in context.segments):
            return "<preference>A</preference>"
        shown = context.prompt.messages[-1].content
        return f"```python\n{next(source for prompt, source in programs.items() if prompt in shown)}\n```\n"

    options = JudgeOptions(evidence=evidence, order="given", concurrency=at_once)
    async with JudgeEngine(options, generator=ScriptedGenerator(turn)) as engine:
        await engine.judge(given[0])
        started = time.perf_counter()
        async for one in as_finished((engine.judge(task) for task in given), at_once):
            assert one.stop == "verdict", one.detail
            assert (one.decided is not None) == evidence
        return time.perf_counter() - started


def run(rows: int, at_once: int, *, evidence: bool) -> tuple[float, float]:
    """Return milliseconds of a row: wall time, and CPU time with the start and end of the sandbox."""
    given, programs = tasks(rows)
    before = cpu_seconds()
    seconds = asyncio.run(judged(given, programs, evidence=evidence, at_once=at_once))
    return 1000 * seconds / rows, 1000 * (cpu_seconds() - before) / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=1, help="rows at once")
    options = parser.parse_args()
    rows, at_once = options.rows, options.at_once
    pairs = [
        (run(rows, at_once, evidence=False), run(rows, at_once, evidence=True)) for _ in range(options.pairs)
    ]
    draw = random.Random(0)
    for place, name in enumerate(TIMES):
        differences = [after[place] - before[place] for before, after in pairs]
        drawn = sorted(median(draw.choices(differences, k=len(differences))) for _ in range(2000))
        print(
            f"{name}: {median(before[place] for before, _ in pairs):.1f} ms a row without evidence, "
            f"which adds {median(differences):.1f} ms [{drawn[49]:.1f}, {drawn[-50]:.1f}]"
        )
    print(f"{options.pairs} pairs of {rows} rows, {at_once} at once")


if __name__ == "__main__":
    main()
