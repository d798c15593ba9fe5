"""Small folders of sources and benchmarks, so that the generator runs without any download."""

from __future__ import annotations

import json
from pathlib import Path

from research.smol.training_rows.benchmarks import FILES
from research.smol.training_rows.requests import MODELS

BENCHMARK_PROMPT = "Write a riddle about a lighthouse keeper who collects old clocks and never sleeps"
"""The only prompt of every benchmark but MBPP."""
CODE = "def add(a, b):\n    c = a + b\n    return c"


def write_sources(folder: Path) -> Path:
    """Write a few rows of each source, and one prompt for each benchmark; returns the folder of sources."""
    sources = folder / "corpora"
    seeds = [
        {
            "instruction": f"Explain the idea of number {number}.",
            "instances": [
                {"input": "", "output": f"Number {number} is a good idea. It has a long story. " * 4}
            ],
            "is_classification": False,
        }
        for number in range(16)
    ]
    seeds.append({**seeds[0], "instruction": BENCHMARK_PROMPT})
    _write(sources / "self-instruct" / "seed_tasks.jsonl", seeds)
    for model in MODELS:
        answers = [
            {
                "instruction": f"Give me advice on matter {number}.",
                "input": "",
                "response": f"{model} says that matter {number} needs time. Think about it. " * (3 + number),
            }
            for number in range(16)
        ]
        _write(sources / "self-instruct" / f"predictions-{model}.jsonl", answers)
    problems = [
        {
            "task_id": id,
            "text": f"Add two numbers in way {id}.",
            "code": CODE.replace("add", f"add_{id}"),
            "test_list": [f"assert add_{id}(1, 2) == 3", f"assert add_{id}(0, 5) == 5"],
            "test_setup_code": "",
        }
        for id in (20, 520, 521, 601, 602, 603)
    ]
    _write(sources / "mbpp" / "mbpp.jsonl", problems)
    for path in FILES.values():
        row = {"prompt": BENCHMARK_PROMPT}
        if path.endswith(".jsonl"):
            _write(folder / "benchmarks" / path, [row])
        else:
            (folder / "benchmarks" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "benchmarks" / path).write_text(json.dumps([row]))
    return sources


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
