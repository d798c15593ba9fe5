"""`tirjudge reproduce` over many programs: its rate, and whether planted changes are found.

A scripted judge lets its programs run in the sandbox, so no model is needed. Then some records are changed:
what a program printed, what the judge was shown, the source, the seed, or a response.

    OMP_NUM_THREADS=1 python -m benchmarks.reproduction                  # 1,000 programs, 50 of them changed
    OMP_NUM_THREADS=1 python -m benchmarks.reproduction --programs 100 --changes 10

Prints programs per second for the unchanged file (everything included: start of the sandbox, and reading the
file), how many programs gave the recorded output, and how many of the changes were found. Exits with 1 if an
unchanged program differs or a change is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.command import TIRJUDGE
from tirjudge.data.rows import Row
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.batch import BatchRunner, EngineRows, Failure, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.storage.result_file import ResultFile
from tirjudge_environments import By, Context

PROGRAMS = (
    "print(len(response_a.split()), len(response_b.split()))",
    "import re\nprint(len(re.findall('[aeiou]', response_a)), len(re.findall('[aeiou]', response_b)))",
    "import random\nprint(len(responses), random.random())",
    "from collections import Counter\nprint(Counter(response_a + response_b).most_common(3))",
    "import sympy\nx = sympy.Symbol('x')\nprint(sympy.factor(x**2 + 3*x + 2), len(response_a))",
    "print(len(response_a))\nprint(int(response_b))",
)
"""Programs of the kinds that judges write; the last one ends with an error."""
WORDS = ("judge", "runs", "programs", "before", "it", "gives", "a", "verdict", "that", "anyone", "checks")

Change = Callable[[dict[str, Any]], None]


class Silent:
    def judged(self, row: Mapping[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None:
        print(failure, file=sys.stderr)


async def judged(path: Path, count: int, seed: int) -> None:
    """Write a result file of `count` rows with one program each."""
    draw = random.Random(seed)
    rows = [
        {
            "id": f"row-{n}",
            "prompt": f"Program {n}: which is longer?",
            "responses": [" ".join(draw.choices(WORDS, k=draw.randint(5, 200))) for _ in range(2)],
        }
        for n in range(count)
    ]

    def turn(context: Context) -> str:
        if any(segment.by is By.SANDBOX for segment in context.segments):
            return "<preference>A</preference>"
        number = int(context.prompt.messages[-1].content.partition("Program ")[2].partition(":")[0])
        return f"```python\n{PROGRAMS[number % len(PROGRAMS)]}\n```\n"

    engine = JudgeEngine(JudgeOptions(seed=seed), generator=ScriptedGenerator(turn))
    with ResultFile(path, {}) as results:
        async with engine:
            await BatchRunner(EngineRows(engine).row, ResultSink(results, Silent())).run(
                Row(f"rows:{n}", f"row-{n}", row) for n, row in enumerate(rows)
            )


def program(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in row["views"][0]["segments"] if one["kind"] == "program")
    return found


def printed(row: dict[str, Any]) -> None:
    """Change one digit of what the program printed."""
    text = program(row)["stdout"]
    place = next(n for n, mark in enumerate(text) if mark.isdigit())
    program(row)["stdout"] = f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


def shown(row: dict[str, Any]) -> None:
    """Change what the judge was shown, and nothing else."""
    output = next(one for one in row["views"][0]["segments"] if one["kind"] == "output")
    output["text"] = output["text"].replace("\n", "\n1", 1)


def source(row: dict[str, Any]) -> None:
    program(row)["text"] = f"print(1)\n{program(row)['text']}"


def ending(row: dict[str, Any]) -> None:
    ok = program(row)["status"] == "ok"
    program(row).update({"status": "error", "exit_code": 1} if ok else {"status": "ok", "exit_code": 0})


def response(row: dict[str, Any]) -> None:
    """Add a word to both responses, so that every program prints something else."""
    row["responses"] = [f"{text} umbrella" for text in row["responses"]]


CHANGES: tuple[Change, ...] = (printed, shown, source, ending, response)


def change(path: Path, changed: Path, count: int, seed: int) -> list[str]:
    """Write a copy of a result file with `count` changed rows, and return their ids."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    # The output of this program depends on the number of responses and the seed alone.
    eligible = [row for row in rows if "random" not in program(row)["text"]]
    picked = random.Random(seed).sample(eligible, count)
    for number, row in enumerate(picked):
        CHANGES[number % len(CHANGES)](row)
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return sorted(row["id"] for row in picked)


def reproduced(path: Path) -> tuple[dict[str, Any], float]:
    """Return the command's JSON and its seconds."""
    started = time.monotonic()
    run = subprocess.run([TIRJUDGE, "reproduce", str(path), "--json"], stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - started
    if run.returncode not in (0, 1):
        raise SystemExit(f"tirjudge reproduce ended with {run.returncode}")
    record: dict[str, Any] = json.loads(run.stdout)
    return record, seconds


def main(arguments: list[str] | None = None) -> int:
    """Judge, reproduce, change and reproduce again; return 1 if the outcome is not as planted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path, changed = Path(folder) / "judged.jsonl", Path(folder) / "changed.jsonl"
        asyncio.run(judged(path, options.programs, options.seed))
        record, seconds = reproduced(path)
        planted = change(path, changed, options.changes, options.seed)
        found, _ = reproduced(changed)
    print(f"programs  {record['programs']} in {seconds:.1f} s, {record['programs'] / seconds:.1f} per second")
    print(f"same      {record['same']} of {record['programs']}")
    different = sorted(one["id"] for one in found["not_same"] if one["outcome"] == "different")
    hits = set(different) & set(planted)
    print(
        f"changed   {len(planted)} records, {len(hits)} found; {len(different) - len(hits)} others reported"
    )
    return int(record["same"] != options.programs or different != planted)


if __name__ == "__main__":
    sys.exit(main())
