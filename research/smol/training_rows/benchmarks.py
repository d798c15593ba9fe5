"""The evaluation prompts that the training data must not share eight words in a row with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from research.smol.training_rows.coding import EVALUATED, Problem
from research.smol.training_rows.requests import BadSources
from tirjudge_training.corpora.decontamination import OverlapIndex, Text

FILES = {
    "ifeval": "ifeval/input_data.jsonl",
    "ifbench": "ifbench/agentrm-ifbench-444.json",
    "pandalm": "pandalm/testset-v1.json",
    "rm-bench-chat": "rm-bench/chat_filtered.json",
    "rm-bench-code": "rm-bench/code_filtered.json",
    "rm-bench-safety": "rm-bench/safety-response_filtered.json",
    "judgebench": "judgebench/pairs-gpt-4o.jsonl",
}
"""The benchmarks with their files in the folder of benchmarks."""


def evaluation_index(folder: Path, problems: list[Problem]) -> OverlapIndex:
    """Return the index of all evaluation prompts, MBPP's test split included. Raises BadSources."""
    texts = [text for name, path in FILES.items() for text in _texts(name, folder / path)]
    texts += [
        Text("mbpp", str(problem.id), text)
        for problem in problems
        if problem.id in EVALUATED
        for text in (problem.text, problem.tests)
    ]
    return OverlapIndex(texts)


def _texts(name: str, path: Path) -> Iterator[Text]:
    try:
        written = path.read_text(encoding="utf-8")
        rows = (
            [json.loads(line) for line in written.splitlines() if line.strip()]
            if path.suffix == ".jsonl"
            else json.loads(written)
        )
        for number, row in enumerate(rows):
            for text in _prompts(row):
                yield Text(name, str(number), text)
    except OSError as error:
        raise BadSources(
            f"cannot read {path}: {error.strerror}; name the folder of benchmarks with --benchmarks"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadSources(f"{path}: not the rows of {name} ({error!r})") from None


def _prompts(row: dict[str, Any]) -> Iterator[str]:
    if "text_chosen" in row:
        yield from (message["content"] for message in row["text_chosen"] if message["role"] == "user")
    elif "instruction" in row:
        yield row["instruction"]
        if row["input"]:
            yield row["input"]
    else:
        yield row["question"] if "question" in row else row["prompt"]
