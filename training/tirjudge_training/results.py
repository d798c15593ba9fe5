"""The table of a run's results: the accuracy of every measured model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.course import HELDOUT, Course
from tirjudge_training.heldout import shown


def table(course: Course, results: Mapping[str, Any]) -> str:
    """Return Markdown: one row per measured model, one column per judge, with 95 % intervals."""
    rows = {name: results[HELDOUT + name] for name in course.models}
    judges = list(next(iter(rows.values()), {}))
    lines = [f"| model | {' | '.join(judges)} |", f"|---|{'---|' * len(judges)}"]
    for name, found in rows.items():
        cells = (shown(found[judge]["accuracy"]) for judge in judges)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
