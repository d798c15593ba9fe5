"""alpaca_eval's annotation files: preferences between a baseline's output and a model's."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields

_DRAWS = (0, 1.5)
_IDENTITY = ("instruction", "input", "dataset", "generator_1")
"""Columns that identify a row, together with the model (`generator_2`): the prompt and the baseline."""
_SHOWN = 40
"""Characters of the instruction in a row's id."""


class AlpacaEval:
    """1 prefers the baseline, 2 the model, values between are weights; 0 and 1.5 are draws."""

    name = "alpaca_eval"
    about = "tatsu-lab/alpaca_eval: annotations.json"
    benchmark = ""
    protocols = ("win-rate",)

    def recognises(self, row: Fields) -> bool:
        return "preference" in row and "output_2" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        yield JudgedRow(
            id=_id(row) if "instruction" in row else default_id,
            votes=(),
            domain=str(row.get("dataset") or ""),
            tags=(f"model={row['generator_2']}",) if row.get("generator_2") else (),
            extras={"preference": _preference(row["preference"])},
        )


ALPACA_EVAL = AlpacaEval()


def _id(row: Fields) -> str:
    """Return the start of the instruction, and a digest of everything that identifies the row."""
    identity = json.dumps([row.get(name) or "" for name in _IDENTITY], sort_keys=True)
    digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
    return f"{' '.join(str(row['instruction'])[:_SHOWN].split())} [{digest}]"


def _preference(value: Any) -> float | None:
    """Return a preference from 1 to 2; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value in _DRAWS:
        return 1.5
    return float(value) if math.isfinite(value) and 1 <= value <= 2 else None
