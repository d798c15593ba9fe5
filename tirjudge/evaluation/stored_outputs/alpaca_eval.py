"""alpaca_eval's annotation files: preferences between a baseline's output and a model's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from tirjudge.evaluation.judged_rows import MODEL, JudgedRow, Preference
from tirjudge.evaluation.stored_outputs.base import (
    OTHER,
    Record,
    Scale,
    Unreadable,
    need_number,
    need_text,
    prompt_of,
    shown,
)

_DRAWS = (0, 1.5)
_IDENTITY = ("instruction", "input", "dataset", "generator_1")
"""Columns that identify a row, together with the model (`generator_2`): the prompt and the baseline."""
_JSON = json.JSONEncoder(sort_keys=True)
_SHOWN = 40
"""Characters of the instruction in a row's id."""
_OUTPUTS = ("output_1", "output_2")
_DIFFICULTY = "instruction_difficulty"
"""A column that alpaca_eval 2 adds for win rates at equal length."""


def _fault(counts: Mapping[float, int]) -> str:
    if 0.0 in counts and 1.0 in counts and OTHER not in counts:
        return "is 0 or 1 in all rows: alpaca_eval's scale is 1 (the baseline) to 2 (the model)"
    return ""


class AlpacaEval:
    """1 prefers the baseline, 2 the model, values between are weights; 0 and 1.5 are draws.

    A row's id is made from the instruction and the baseline, so that runs of two models are paired by them.
    """

    name = "alpaca_eval"
    about = "tatsu-lab/alpaca_eval: annotations.json"
    benchmark = ""
    protocols = ("win-rate", "length-controlled")
    scales = (Scale("preference", lambda row: [row.get("preference")], _fault),)

    def recognises(self, row: Record) -> bool:
        return "preference" in row and "output_2" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        lengths = [len(one) for one in map(row.get, _OUTPUTS) if isinstance(one, str)]
        yield JudgedRow(
            id=_id(row),
            votes=(),
            domain=str(row.get("dataset") or ""),
            tags=(f"{MODEL}={row['generator_2']}",) if row.get("generator_2") else (),
            preference=Preference(
                _preference(row),
                str(row.get("generator_1") or ""),
                None if row.get(_DIFFICULTY) is None else need_number(row, _DIFFICULTY),
            ),
            lengths=tuple(lengths) if len(lengths) == len(_OUTPUTS) else (),
            cluster=prompt_of(row),
        )


ALPACA_EVAL = AlpacaEval()


def _id(row: Record) -> str:
    """Return the start of the instruction, and a digest of everything that identifies the row."""
    identity = _JSON.encode([row.get(name) or "" for name in _IDENTITY])
    digest = blake2b(identity.encode(), digest_size=8).hexdigest()
    return f"{' '.join(need_text(row, 'instruction')[:_SHOWN].split())} #{digest}"


def _preference(row: Record) -> float | None:
    """Return a preference from 1 to 2; None for an annotation that failed. Raises Unreadable for others."""
    value = row["preference"]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, bool) and isinstance(value, int | float):
        if value in _DRAWS:
            return 1.5
        if 1 <= value <= 2:
            return float(value)
    raise Unreadable(
        f"preference is {shown(value)}, not a number from 1 (the baseline) to 2 (the model), and no draw "
        "(0 or 1.5)"
    )
