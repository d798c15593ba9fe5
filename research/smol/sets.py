"""The sets on which the smol judge is measured, written as rows that `tirjudge judge` reads.

    OMP_NUM_THREADS=1 python -m research.smol.sets --output FOLDER
    OMP_NUM_THREADS=1 python -m research.smol.sets --output FOLDER --families ten --only broken ...

Writes `NAME.development.jsonl` and `NAME.test.jsonl` for each set, and `sets.json` with sizes and checksums.
Every label is confirmed by a program: IFEval's verifiers, MBPP's asserts in the sandbox; the labels of the
published benchmarks are their own. Rows have a `label`, and metadata that the results are split by.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from research.smol import code_pairs, ifeval_pairs
from research.smol.sources import (
    Fields,
    gsm8k_solutions,
    ifbench_rows,
    judgebench_pairs,
    pandalm_pairs,
    rm_bench_rows,
)
from research.smol.splits import FAMILIES, HELD_OUT_FAMILIES, SEED, SPLITS, Split, rank, split_of
from tirjudge.evaluation.benchmarks.judgebench import section_of
from tirjudge_sandbox import open_sandbox

IFEVAL_SETS = {
    "broken": ifeval_pairs.broken_pairs,
    "repaired": ifeval_pairs.repaired_pairs,
    "both-edited": ifeval_pairs.both_edited_pairs,
    "lists": ifeval_pairs.lists,
}
SAMPLED = {
    "lists": 100,
    "pointwise": 100,
    "both-orders": 100,
    "no-program": 100,
    "gsm8k": 100,
    "rm-bench": 50,
}
"""Rows of each half, drawn by seed; of RM-Bench, rows of each part."""
HELD_OUT_ROWS, STORED = "held_out", {"unseen", "everyday"}
"""The folder of the sets that are stored, and their names."""
_PROGRAMS = ("demonstration", "checks", "environment")
"""Columns with the programs behind the labels, which the judge does not get."""

_NEEDS_NO_PROGRAM = re.compile(
    r"\d|\b(?:code|program|python|function|sql|javascript|html|algorithm|script|regex|comput\w*|calculat\w*|sort\w*|"
    r"count\w*|numbers?|words?|letters?|characters?|sentences?|paragraphs?|lines?|bullets?|json|csv|table|lists?|"
    r"sudoku|one|two|three|four|five|six|seven|eight|nine|ten|haiku|poem|limerick|acronym|anagram|rhym\w*|palindrome|"
    r"uppercase|lowercase|capital\w*|math\w*|equation|date|percent\w*|convert|format|how many|how much)\b",
    re.IGNORECASE,
)
"""Prompts with such a word may be checkable by a program; the no-program set leaves them out."""


def sample(rows: Iterable[Fields], count: int, purpose: str) -> list[Fields]:
    """Return a seeded sample of rows."""
    return sorted(rows, key=lambda row: rank(purpose, row["id"]))[:count]


def _pair(name: str, prompt: str, better: str, worse: str, **about: Any) -> Fields:
    place = rank("position", name) % 2
    responses = [worse, better] if place else [better, worse]
    return {"id": name, "prompt": prompt, "responses": responses, "label": place, **about}


def natural(split: Split) -> Iterator[Fields]:
    """Yield IFBench-agentrm's pairs: two models' unedited answers, one of which keeps all constraints."""
    for row in ifbench_rows():
        if split_of(row["prompt"]) == split:
            name = f"ifbench-{row['id']}"
            yield _pair(
                name,
                row["prompt"],
                row["chosen"],
                row["rejected"],
                domain="instruction-following",
                families=["ifbench"],
                level=row["domain"],
            )


def no_program(split: Split) -> Iterator[Fields]:
    """Yield chat prompts that no program helps to judge: PandaLM's, one pair each, and RM-Bench's."""
    pairs = sorted(pandalm_pairs(), key=lambda row: rank("pandalm", row["id"]))
    by_prompt = {row["prompt"]: row for row in pairs}
    rows = [
        {"id": f"pandalm-{row['id']}", **{key: row[key] for key in ("prompt", "responses", "label")}}
        for row in by_prompt.values()
    ]
    rows += [
        _pair(f"rm-bench-chat-{row['id']}-plain", row["prompt"], row["chosen"][1], row["rejected"][1])
        for row in rm_bench_rows("chat")
    ]
    # Some prompts are in both: the last row of a prompt counts.
    for row in {row["prompt"]: row for row in rows}.values():
        if split_of(row["prompt"]) == split and not _NEEDS_NO_PROGRAM.search(row["prompt"]):
            yield row | {"domain": "helpfulness", "families": ["general"]}


def gsm8k(split: Split) -> Iterator[Fields]:
    """Yield a right and a wrong model solution of a GSM8K question."""
    for row in gsm8k_solutions():
        if split_of(row["question"]) == split:
            name = f"gsm8k-{hashlib.sha256(row['question'].encode()).hexdigest()[:12]}"
            draw = rank("solution", name)
            right, wrong = row["right"], row["wrong"]
            yield _pair(
                name,
                row["question"],
                right[draw % len(right)],
                wrong[draw // 7 % len(wrong)],
                domain="math",
                families=["gsm8k"],
            )


def rm_bench(split: Split) -> list[Fields]:
    """Return a seeded sample of each part; a prompt has one of its nine pairs of styles, drawn as well."""
    found = []
    for part, domain in (("chat", "chat"), ("code", "code"), ("safety-response", "safety")):
        rows = []
        for row in rm_bench_rows(part):
            name = f"rm-bench-{part}-{row['subset']}-{row['id']}-{row.get('language', '')}".rstrip("-")
            cells = list(product(range(3), repeat=2))
            better, worse = cells[rank("cell", name) % len(cells)]
            if split_of(row["prompt"]) == split:
                pair = _pair(name, row["prompt"], row["chosen"][better], row["rejected"][worse])
                rows.append(pair | {"domain": domain, "families": [f"rm-bench {part}"]})
        found += sample(rows, SAMPLED["rm-bench"], "rm-bench")
    return found


def judgebench(split: Split) -> Iterator[Fields]:
    """Yield JudgeBench's pairs as published."""
    for row in judgebench_pairs():
        if split_of(row["question"]) == split:
            yield {
                "id": f"judgebench-{row['pair_id']}",
                "prompt": row["question"],
                "responses": [row["response_A"], row["response_B"]],
                "label": row["label"],
                "domain": section_of(row["source"]),
                "families": [f"judgebench {section_of(row['source'])}"],
            }


def stored(name: str, split: Split) -> Iterator[Fields]:
    """Yield the rows of a set that was written before any training on many kinds of rules.

    `unseen` has pairs of kinds of rules that no training row contains, and `everyday` pairs with rules as
    people write them. Both were labelled by programs.
    """
    file = next((Path(__file__).parent / HELD_OUT_ROWS).glob(f"{name}.jsonl*"))
    opened = lzma.open if file.suffix == ".xz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if split_of(row["prompt"]) == split:
                yield {key: value for key, value in row.items() if key not in _PROGRAMS}


def all_sets(split: Split, names: Iterable[str] | None = None) -> Iterator[tuple[str, list[Fields]]]:
    """Yield the name and the rows of each set of a half, or of those that are named."""
    wanted = set(NAMES if names is None else names)
    made: dict[str, list[Fields]] = {}
    for name, make in IFEVAL_SETS.items():
        if wanted & {name, "pointwise", "both-orders"} and (name != "lists" or name in wanted):
            made[name] = list(make(split))
    if "lists" in wanted:
        made["lists"] = sample(made["lists"], SAMPLED["lists"], "lists")
    for name in sorted(wanted & {"pointwise", "both-orders"}):
        pairs = [row for other in ("broken", "repaired", "both-edited") for row in made[other]]
        made[name] = sample(pairs, SAMPLED[name], name)
    if "natural" in wanted:
        made["natural"] = list(natural(split))
    if "mbpp" in wanted:
        made["mbpp"] = asyncio.run(_mbpp(split))
    if "no-program" in wanted:
        made["no-program"] = sample(no_program(split), SAMPLED["no-program"], "no-program")
    if "gsm8k" in wanted:
        made["gsm8k"] = sample(gsm8k(split), SAMPLED["gsm8k"], "gsm8k")
    if "rm-bench" in wanted:
        made["rm-bench"] = rm_bench(split)
    if "judgebench" in wanted:
        made["judgebench"] = list(judgebench(split))
    for name in sorted(wanted & STORED):
        made[name] = list(stored(name, split))
    yield from ((name, made[name]) for name in NAMES if name in wanted)


NAMES = (
    "broken",
    "repaired",
    "both-edited",
    "natural",
    "unseen",
    "everyday",
    "mbpp",
    "lists",
    "pointwise",
    "both-orders",
    "no-program",
    "gsm8k",
    "rm-bench",
    "judgebench",
)
"""The sets, those of the headline first."""


async def _mbpp(split: Split) -> list[Fields]:
    async with open_sandbox() as sandbox:
        return await code_pairs.pairs(split, sandbox)


def write(
    folder: Path, names: Iterable[str] | None = None, families: Iterable[str] | None = None
) -> dict[str, Any]:
    """Write the sets and return the content of `sets.json`; entries of other files in it stay.

    With `families`, write only rows without any other family, and no file for a set that has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "sets.json"
    files = json.loads(index.read_text(encoding="utf-8"))["files"] if index.exists() else {}
    about: dict[str, Any] = {"seed": SEED, "held_out_families": HELD_OUT_FAMILIES, "files": files}
    for split in SPLITS:
        for name, made in all_sets(split, names):
            # In drawn order: the first rows of a file are a seeded sample of the set.
            rows = sorted(made, key=lambda row: rank("order", row["id"]))
            if families is not None:
                rows = [row for row in rows if set(row["families"]) <= set(families)]
                if not rows:
                    continue
            text = "".join(
                f"{json.dumps(row | {'set': name, 'split': split}, ensure_ascii=False)}\n" for row in rows
            )
            file = folder / f"{name}.{split}.jsonl"
            file.write_text(text, encoding="utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            about["files"][file.name] = {"rows": len(rows), "sha256": checksum}
            print(f"{file.name}: {len(rows)} rows, sha256 {checksum[:12]}", flush=True)
    index.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return about


def main() -> None:
    """Write all sets, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="the folder for the rows; not committed")
    parser.add_argument("--only", choices=NAMES, action="append", help="write only this set; repeatable")
    parser.add_argument(
        "--families",
        choices=FAMILIES,
        help="write only rows whose constraints are all of this group of families",
    )
    options = parser.parse_args()
    write(options.output, options.only, FAMILIES[options.families] if options.families else None)


if __name__ == "__main__":
    main()
