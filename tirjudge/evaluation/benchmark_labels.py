"""Sections and labels of published benchmarks, as their authors define them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REWARDBENCH = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {
        "math-prm": 984,
        "hep-cpp": 164,
        "hep-go": 164,
        "hep-java": 164,
        "hep-js": 164,
        "hep-python": 164,
        "hep-rust": 164,
    },
}
"""RewardBench's sections and the weights of their subsets (reward-bench, constants.py).

math-prm weighs as much as the six code subsets together, 984, although it has 447 examples.
"""

REWARDBENCH_ROWS = {subset: size for subsets in REWARDBENCH.values() for subset, size in subsets.items()} | {
    "math-prm": 447
}
"""Rows of RewardBench's subsets, which are their weights except for math-prm."""

_JUDGEBENCH = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}


def judgebench_section(source: str) -> str:
    """Return knowledge, reasoning, math or coding for a JudgeBench row's `source`, otherwise the source."""
    return next((section for start, section in _JUDGEBENCH.items() if source.startswith(start)), source)


def rmb_section(category_path: str) -> str:
    """Return `Pairwise Helpfulness` for `Pairwise_set/Helpfulness/...`. Raises ValueError for other paths."""
    part, _, rest = category_path.partition("_set/")
    kind = rest.partition("/")[0]
    if part not in ("Pairwise", "BoN") or kind not in ("Helpfulness", "Harmlessness"):
        raise ValueError(f"category_path {category_path!r} is not one of RMB's")
    return f"{part} {kind}"


_ANNOTATORS = ("annotator1", "annotator2", "annotator3")
_PANDALM_BEST = {0: (0, 1), 1: (0,), 2: (1,)}
_PANDALM_CLASSES = tuple(map(str, _PANDALM_BEST))


def pandalm_label(row: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the candidates in first place by majority of PandaLM's annotators, and each annotator's class.

    Two candidates are a tie. The classes are 0 for a tie, and 1 or 2 for a response. Raises KeyError for a
    row without annotators, and ValueError for another class or if all three disagree.
    """
    for name in _ANNOTATORS:
        if str(row[name]) not in _PANDALM_CLASSES:
            raise ValueError(f"{name} is {row[name]!r}, not 0 (tie), 1 or 2")
    classes = tuple(int(row[name]) for name in _ANNOTATORS)
    chosen = max(classes, key=classes.count)
    if classes.count(chosen) == 1:
        raise ValueError("the three annotators disagree: no majority")
    return _PANDALM_BEST[chosen], classes
