"""RM-R1's summaries of RewardBench, RM-Bench and RMB: rates by section without rows, and their means."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from tirjudge.evaluation.judged_rows import Figures, JudgedRow, ProtocolCard, Units, Unscorable
from tirjudge.evaluation.scoring import UnitsBuilder, section_figures
from tirjudge.evaluation.stored_outputs.base import Record, Unreadable, need_share, shown
from tirjudge.statistics.estimators import Statistic


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
            if row.rate is None:
                raise Unscorable(f"row {row.id!r} is not a line of a summary")
            builder.add_row(row, row.rate)
        return builder.build()

    def figures(self, units: Units) -> Figures:
        rates = units.values[:, 0]
        means = {f"mean of {name}": one.value for name, one in section_figures(units, rates).items()}
        figures = means | dict(zip(units.ids, map(float, rates), strict=True))
        # The rows behind the rates, and so their number, are not in the file.
        return {name: Statistic(value, None) for name, value in figures.items()}


SUMMARY_PROTOCOL = Summary()


_GROUPS = {
    "sections": ("Chat", "Chat Hard", "Safety", "Reasoning"),
    "domains": ("chat", "math", "code", "safety"),
    "difficulties": ("easy_acc", "normal_acc", "hard_acc"),
    "four sections": ("Pairwise Helpfulness", "Pairwise Harmlessness", "BoN Helpfulness", "BoN Harmlessness"),
}


_TOTALS = {
    "avg_Result_each_section": ("sections",),
    "total_avg_acc": ("domains", "difficulties"),
    "Accuracy Averaged from Four Sections": ("four sections",),
}
"""Column of a stored total, and the groups whose mean it must be."""
_SLACK = 1e-9


class Summaries:
    """Each rate in a known group becomes a row; the means are compared with the stored totals."""

    name = "rm-r1-summary"
    about = "RM-R1-UIUC/RM-R1: rates by section, domain and difficulty"
    benchmark = ""
    protocols = ("summary",)

    def recognises(self, row: Record) -> bool:
        return any(2 * sum(name in row for name in names) > len(names) for names in _GROUPS.values())

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        means = {}
        for group, names in _GROUPS.items():
            if not any(name in row for name in names):
                continue
            for name in names:
                if name not in row:
                    raise Unreadable(f"no column {name!r}, one of the {group} ({', '.join(names)})")
                yield JudgedRow(
                    id=name.removesuffix("_acc"), votes=(), domain=group, rate=need_share(row, name)
                )
            means[group] = sum(float(row[name]) for name in names) / len(names)
        for total, groups in _TOTALS.items():
            for group in groups:
                if total in row and group in means:
                    _compare(row, total, group, means[group])


SUMMARIES_OUTPUTS = Summaries()


def _compare(row: Record, total: str, group: str, mean: float) -> None:
    """Raise Unreadable if a stored total is not the mean of its parts, as far as they were rounded."""
    # All parts were rounded alike, so that the finest one tells how: 0.8 may be exact.
    parts = [row[name] for name in _GROUPS[group]]
    slack = _SLACK + _rounding(row[total]) + min(map(_rounding, parts))
    if abs(need_share(row, total) - mean) > slack:
        names = ", ".join(_GROUPS[group])
        raise Unreadable(
            f"{total} is {shown(row[total])}, but the mean of its {group} ({names}) is {mean:.6g}"
        )


def _rounding(value: object) -> float:
    """Return half a unit of the last decimal of a number."""
    exponent = Decimal(str(value)).as_tuple().exponent if isinstance(value, int | float) else 0
    return 0.5 * 10.0**exponent if isinstance(exponent, int) else 0.0
