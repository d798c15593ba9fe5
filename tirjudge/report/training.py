"""Training runs for a page: their stages, curves and events, read from the run folder's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run, read once."""

    name: str
    summary: Mapping[str, Any]
    charts: Mapping[str, Any]


def is_training_run(folder): return False
def read_training_run(folder): ...
