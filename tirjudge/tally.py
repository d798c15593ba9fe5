"""The running counts of a result file, which the table at the end prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tirjudge.statistics import Proportion


@dataclass(slots=True)
class Tally:
    """Counts of result rows, and of rows that failed."""

    judged: int = 0
    """Rows with a line in the result file, with or without a verdict."""
    failed: int = 0
    """Rows without a line: unreadable, or the model or the sandbox was down."""
    verdicts: int = 0
    """Rows with a choice, a tie or a score."""
    ties: int = 0
    labelled: int = 0
    credit: float = 0.0
    """Sum over labelled rows: 1 for a right choice, a share for a tie, 0 for a wrong or missing verdict."""
    programs: int = 0
    """Programs executed, not counting refused ones."""
    programs_failed: int = 0
    programs_refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stops: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        self.judged += 1
        self.stops[row["stop"]] += 1
        self.verdicts += row["stop"] == "verdict"
        self.ties += row["verdict"] == "tie"
        if row["correct"] is not None:
            self.labelled += 1
            self.credit += row["correct"]
        self.programs += row["programs"]
        self.programs_failed += row["programs_failed"]
        self.programs_refused += row["programs_refused"]
        self.prompt_tokens += row["prompt_tokens"]
        self.completion_tokens += row["completion_tokens"]

    @property
    def accuracy(self) -> Proportion:
        return Proportion(min(self.credit, float(self.labelled)), self.labelled)
