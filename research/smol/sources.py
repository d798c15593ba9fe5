"""Public data that the sets are made of; the project ships none of it.

The files are read from `../shared/benchmarks` and `../shared/corpora` next to the project's root, or from the
folders that `TIRJUDGE_BENCHMARK_DATA` and `TIRJUDGE_CORPORA` name.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

_SHARED = Path(__file__).parents[3] / "shared"
BENCHMARKS = Path(os.environ.get("TIRJUDGE_BENCHMARK_DATA", _SHARED / "benchmarks"))
CORPORA = Path(os.environ.get("TIRJUDGE_CORPORA", _SHARED / "corpora"))

Fields = dict[str, Any]


def read_lines(path: Path) -> list[Fields]:
    """Return the objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def ifeval_rows() -> tuple[Fields, ...]:
    """Return IFEval's 541 prompts with GPT-4's published answer as `response`."""
    answers = {
        row["prompt"]: row["response"] for row in read_lines(BENCHMARKS / "ifeval/responses-gpt4.jsonl")
    }
    return tuple(
        row | {"response": answers[row["prompt"]]}
        for row in read_lines(BENCHMARKS / "ifeval/input_data.jsonl")
    )


@cache
def ifbench_rows() -> tuple[Fields, ...]:
    """Return the 444 pairs of IFBench-agentrm: `id`, `prompt`, `chosen`, `rejected`, `domain`."""
    published = json.loads((BENCHMARKS / "ifbench/agentrm-ifbench-444.json").read_text(encoding="utf-8"))
    return tuple(
        {
            "id": row["id"],
            "prompt": row["text_chosen"][0]["content"],
            "chosen": row["text_chosen"][1]["content"],
            "rejected": row["text_rejected"][1]["content"],
            "domain": row["domain"],
        }
        for row in published
    )


@cache
def mbpp_problems(first: int = 11, last: int = 510) -> tuple[Fields, ...]:
    """Return the MBPP problems of a range of task ids; 11 to 510 is the published test range."""
    rows = read_lines(CORPORA / "mbpp/mbpp.jsonl")
    return tuple(row for row in rows if first <= row["task_id"] <= last)


@cache
def gsm8k_solutions() -> tuple[Fields, ...]:
    """Return GSM8K questions with model solutions of both kinds: `question`, `right` and `wrong` lists."""
    found = []
    for row in read_lines(CORPORA / "gsm8k/example_model_solutions.jsonl"):
        solutions = [one for one in row.values() if isinstance(one, dict) and one.get("solution", "").strip()]
        right = [one["solution"] for one in solutions if one["is_correct"]]
        wrong = [one["solution"] for one in solutions if not one["is_correct"]]
        if right and wrong:
            found.append({"question": row["question"], "right": right, "wrong": wrong})
    return tuple(found)


@cache
def pandalm_pairs() -> tuple[Fields, ...]:
    """Return PandaLM's pairs on which two of three annotators prefer the same response, without ties."""
    rows = json.loads((BENCHMARKS / "pandalm/testset-v1.json").read_text(encoding="utf-8"))
    found = []
    for row in rows:
        label, votes = Counter(row[f"annotator{i}"] for i in (1, 2, 3)).most_common(1)[0]
        if label and votes > 1:
            prompt = "\n\n".join(text for text in (row["instruction"], row["input"]) if text.strip())
            # The published file has responses such as `true`, which JSON reads as no text.
            responses = [str(row["response1"]), str(row["response2"])]
            found.append(
                {"id": row["idx"], "prompt": prompt, "responses": responses, "label": int(label) - 1}
            )
    return tuple(found)


@cache
def rm_bench_rows(part: str) -> tuple[Fields, ...]:
    """Return a part of RM-Bench: `chat`, `code` or `safety-response`."""
    return tuple(json.loads((BENCHMARKS / f"rm-bench/{part}_filtered.json").read_text(encoding="utf-8")))


@cache
def judgebench_pairs() -> tuple[Fields, ...]:
    """Return JudgeBench's 350 pairs of GPT-4o's answers."""
    return tuple(read_lines(BENCHMARKS / "judgebench/pairs-gpt-4o.jsonl"))
