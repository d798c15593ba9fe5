"""The longest time that each judge takes to parse a megabyte of nested, unclosed or repeated tags.

python -m benchmarks.reader_speed
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from tirjudge_environments import (
    Completion,
    Environment,
    Finish,
    JudgeTask,
    Message,
    environment_names,
    open_environment,
)
from tirjudge_environments.rationales import read_decomposition, read_flaws, read_matching

MEGABYTE = 1_000_000
TAGS = (
    "answer",
    "think",
    "score",
    "score_A",
    "preference",
    "plan",
    "rubric",
    "justify",
    "eval",
    "quote_A",
    "type",
)
PIECES = (
    *(piece for tag in TAGS for piece in (f"<{tag}>", f"</{tag}>", f"<{tag}></{tag}>", f"<{tag}>7")),
    *("<answer><think>", "</think></answer>", "<answer>[[A]]</answer>", "<eval><quote_A>", "[[A]]", "50%"),
    *("```python\n", "```\n", "```output\n", "`", "<", "[", "9", " ", "\n", "- x\n", "  - x\n", "1. x\n"),
    *("<RESULT_START>\n- a\n", "<RESULT_END>", "\\boxed{", "\\boxed{A>B}", "Final assessment result"),
    *("C1: x\n", "R1@S1: 0.5\n", "R1@S1: 0.5 (x", "S1: EG F1\n", "CLAIM_COUNT=1\nCLAIMS:\n"),
)
AROUND = (("", ""), ("<think>x</think>", ""), ("<RESULT_START>\n", "\n<RESULT_END>"))
TASK = JudgeTask(id="task", prompt=(Message("user", "q"),), candidates=("a", "b"), label=0)
LIST = JudgeTask(id="list", prompt=(Message("user", "q"),), candidates=("a", "b", "c"), label=0)


def main() -> None:
    """Print one line per judge and per parser of the rationale judge."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for name in environment_names():
        report(name, reader(open_environment(name)))
    report("decomposition", read_decomposition)
    report("matching", lambda text: read_matching(text, humans=5, reasons=5))
    report("flaws", lambda text: read_flaws(text, 5))


def reader(judge: Environment) -> Callable[[str], object]:
    """Return a function that parses a turn about a pair, or about a list if the judge takes no pairs."""
    try:
        task, view = TASK, judge.views(TASK)[0]
    except ValueError:
        task, view = LIST, judge.views(LIST)[0]
    return lambda text: judge.read(task, view, Completion(text=text, finish=Finish.END))


def report(name: str, read: Callable[[str], object]) -> None:
    """Print the longest time over all texts, and the repeated piece that took it."""
    worst, text = max((seconds(read, piece, around), piece) for piece in PIECES for around in AROUND)
    texts = len(PIECES) * len(AROUND)
    print(f"{name:16} {worst:.2f} CPU s at most over {texts} texts; the slowest repeats {text!r}", flush=True)


def seconds(read: Callable[[str], object], piece: str, around: tuple[str, str]) -> float:
    """Return the CPU seconds of parsing a megabyte of `piece` between a prefix and a suffix."""
    text = around[0] + piece * (MEGABYTE // len(piece)) + around[1]
    started = time.process_time()
    read(text)
    return time.process_time() - started


if __name__ == "__main__":
    main()
