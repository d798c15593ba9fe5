"""Win rate of a model against a baseline, as alpaca_eval computes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.row_ids import RowIds
from tirjudge.evaluation.units import UnitsBuilder
from tirjudge.statistics import Proportion

PREFERENCE = "preference"
"""Key of a row's extras: from 1 (the baseline's output is preferred) to 2 (the model's)."""


MODEL = "model"
"""Name of the tag that says whose outputs are compared with the baseline's."""


class WinRate:
    """Mean preference, which may be fractional, and its standard error.

    Units are instructions if a run has one model, so that runs of two models can be paired; otherwise they
    are instructions with their models.
    """

    card = ProtocolCard(
        name="win-rate",
        about="mean preference for the model over the baseline, and wins with draws as halves",
        ties="are worth 0.5",
        failures="leave the row out",
        source="alpaca_eval, metrics/winrate.py",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        models = set()
        for row in rows:
            if PREFERENCE not in row.extras:
                raise Unscorable(f"row {row.id!r} has no preference: is this an alpaca_eval annotation file?")
            preference = row.extras[PREFERENCE]
            if preference is None:
                builder.counts["left out: no preference"] += 1
                continue
            win = float(preference) - 1
            if win == 0.5:
                builder.counts["tie"] += 1
            model = row.tag(MODEL) or ""
            models.add(model)
            builder.add(_unit(row.id, model), row.domain, win, 1.0 if win > 0.5 else 0.5 * (win == 0.5))
        units = builder.build()
        if len(models) > 1:
            return units
        (model,) = models
        return replace(units, ids=RowIds(id.removesuffix(_unit("", model)) for id in units.ids))

    def figures(self, units: Units) -> Figures:
        win, discrete = units.values.T
        error = float(win.std(ddof=1)) / len(win) ** 0.5 if len(win) > 1 else 0.0
        return {
            "win rate": float(win.mean()),
            "standard error": error,
            "discrete win rate": Proportion.of_rows(discrete),
        }


def _unit(id: str, model: str) -> str:
    return f"{id} by {model}" if model else id


WIN_RATE = WinRate()
