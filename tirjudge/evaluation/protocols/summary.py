"""Published summaries: means of rates that were published without the rows behind them."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.units import UnitsBuilder, section_means
from tirjudge.statistics import Statistic

RATE = "rate"
"""Key of a row's extras: a share from 0 to 1."""


class Summary:
    """Each rate and the mean of each group. Without rows there are no intervals."""

    card = ProtocolCard(
        name="summary",
        about="the unweighted means of a published summary's rates",
        ties="are as the summary counted them",
        failures="are as the summary counted them",
        intervals=False,
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            if RATE not in row.extras:
                raise Unscorable(f"row {row.id!r} is not a line of a summary")
            builder.add(row.id, row.domain, float(row.extras[RATE]))
        return builder.build()

    def figures(self, units: Units) -> Figures:
        rates = units.values[:, 0]
        means = {f"mean of {name}": mean for name, mean in section_means(units, rates).items()}
        figures = means | dict(zip(units.ids, map(float, rates), strict=True))
        # The rows behind the rates, and so their number, are not in the file.
        return {name: Statistic(value, None) for name, value in figures.items()}


SUMMARY = Summary()
