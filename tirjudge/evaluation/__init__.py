"""Evaluation of judges: benchmarks, stored outputs, and named protocols that score judged rows."""

from __future__ import annotations

from tirjudge.evaluation.benchmarks import open_benchmark
from tirjudge.evaluation.scoring import compare, score

__all__ = ["compare", "open_benchmark", "score"]
