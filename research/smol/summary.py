"""Numbers of judged rows: accuracy with its interval, programs, calls and verdicts, by set and by part."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from research.smol.sources import Fields
from tirjudge.statistics.proportions import Proportion

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LABELLED = re.compile(rf"^[A-Z]+ ({_NUMBER.pattern})(?: of \d+)?$", re.MULTILINE)
"""A line with the letter of a response and its count, as the demonstrated programs print them."""
_LINE = re.compile(r"^(?!```).*\S.*$", re.MULTILINE)
"""A line that is neither empty nor a fence."""
Judged = tuple[Fields, Fields | None]
"""A row of a set with its line of the result file; None if it has none."""


def counts(output: str) -> list[tuple[int, int]]:
    """Return where the counts of an output are, as start and end, in the order of the responses.

    They are the numbers of lines such as `B 1 of 2`, or else all numbers of the last line.
    """
    labelled = [one.span(1) for one in _LABELLED.finditer(output)]
    lines = [one.span() for one in _LINE.finditer(output)]
    if labelled or not lines:
        return labelled
    return [one.span() for one in _NUMBER.finditer(output, *lines[-1])]


def credit(judged: Judged) -> float:
    """Return 1 for a right verdict, a share for a tie, 0 for a wrong verdict and for none."""
    line = judged[1]
    return 0.0 if line is None or line["correct"] is None else float(line["correct"])


def right_in_all_orders(judged: Judged) -> float:
    """Return 1 if the verdict of every view names the labelled response, else 0."""
    row, line = judged
    views = line["views"] if line else []
    return float(bool(views) and all((view["verdict"] or {}).get("choice") == _label(row) for view in views))


def program_right(judged: Judged) -> float:
    """Return the share of the views whose program counts most for the labelled response."""
    row, line = judged
    if line is None or not line["views"]:
        return 0.0
    return sum(one.choice == _label(row) for one in separated(line)) / len(line["views"])


def accuracy(rows: Iterable[Judged]) -> Proportion:
    """Return the share of right verdicts; rows without a verdict are wrong.

    Rows with the same prompt depend on each other: the interval's unit is the prompt.
    """
    prompts: dict[str, list[float]] = defaultdict(list)
    for one in rows:
        prompts[one[0]["prompt"]].append(credit(one))
    right, trials = (np.array([how(found) for found in prompts.values()], float) for how in (sum, len))
    return replace(Proportion.of_rows(right, trials), successes=float(right.sum()), n=int(trials.sum()))


@dataclass(frozen=True, slots=True)
class Separated:
    """The choice of a program: the response with the unique highest number in the last output."""

    choice: int
    """Index of the response in the row."""
    verdict: int | None


def separated(line: Fields) -> list[Separated]:
    """Return the choices of the programs of a line's views, where they decide."""
    found = []
    for view in line["views"]:
        outputs = [one["text"] for one in view["segments"] if one["kind"] == "output"]
        values = [float(outputs[-1][start:end]) for start, end in counts(outputs[-1])] if outputs else []
        if len(values) == len(view["order"]) > 1 and values.count(max(values)) == 1:
            verdict = (view["verdict"] or {}).get("choice")
            found.append(Separated(view["order"][values.index(max(values))], verdict))
    return found


def summary(rows: Sequence[Judged]) -> dict[str, Any]:
    """Return the numbers of a set: `n` rows, shares from 0 to 1, and counts."""
    right = accuracy(rows)
    low, high = right.interval
    lines = [line for _, line in rows if line is not None]
    with_verdict = [line for line in lines if line["stop"] == "verdict"]
    views = [view for line in with_verdict for view in line["views"]]
    programs = sum(line["programs"] for line in lines)
    calls = sum(line["programs"] + line["programs_refused"] for line in lines)
    decided = [(row, one) for row, line in rows if line for one in separated(line)]
    found: dict[str, Any] = {
        "n": len(rows),
        "accuracy": right.rate,
        "low": low,
        "high": high,
        "programs": programs,
        "program_errors": _share(sum(line["programs_failed"] for line in lines), programs),
        "calls_per_verdict": _share(calls, len(views)),
        "without_program": _share(sum(not _called(view) for view in views), len(views)),
        "without_verdict": len(rows) - len(with_verdict),
        "program_separates": len(decided),
        "program_right": _share(sum(one.choice == _label(row) for row, one in decided), len(decided)),
        "verdict_follows": _share(sum(one.verdict == one.choice for _, one in decided), len(decided)),
        "completion_tokens": _share(sum(line["completion_tokens"] for line in lines), len(lines)),
    }
    both = [line for line in with_verdict if len(line["views"]) == 2 and len(line["views"][0]["order"]) == 2]
    if both:
        choices = [tuple((view["verdict"] or {}).get("choice") for view in line["views"]) for line in both]
        labels = {str(row["id"]): _label(row) for row, _ in rows}
        found["same_choice"] = _share(sum(a == b for a, b in choices), len(both))
        found["right_in_both_orders"] = _share(
            sum(a == b == labels[line["id"]] for (a, b), line in zip(choices, both, strict=True)), len(rows)
        )
    return found


def _called(view: Fields) -> bool:
    return any(one["kind"] == "program" for one in view["segments"])


def _label(row: Fields) -> int:
    return int({"A>B": 0, "B>A": 1}.get(row["label"], row["label"]))


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def parts(rows: Iterable[Judged], key: Callable[[Fields], Iterable[str]]) -> dict[str, dict[str, Any]]:
    """Return the accuracy of each part; `key` gives the parts of a row."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for judged in rows:
        for name in key(judged[0]):
            groups[name].append(judged)
    found = {}
    for name in sorted(groups):
        right = accuracy(groups[name])
        low, high = right.interval
        found[name] = {"n": right.n, "accuracy": right.rate, "low": low, "high": high}
    return found
