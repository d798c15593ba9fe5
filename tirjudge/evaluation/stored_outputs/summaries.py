"""RM-R1's summaries of RewardBench, RM-Bench and RMB: rates by section, without rows."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable, need_share, shown

_GROUPS = {
    "sections": ("Chat", "Chat Hard", "Safety", "Reasoning"),
    "domains": ("chat", "math", "code", "safety"),
    "difficulties": ("easy_acc", "normal_acc", "hard_acc"),
    "four sections": (
        "Pairwise Helpfulness",
        "Pairwise Harmlessness",
        "BoN Helpfulness",
        "BoN Harmlessness",
    ),
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

    def recognises(self, row: Fields) -> bool:
        return any(2 * sum(name in row for name in names) > len(names) for names in _GROUPS.values())

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        means = {}
        for group, names in _GROUPS.items():
            if not any(name in row for name in names):
                continue
            for name in names:
                if name not in row:
                    raise Unreadable(f"no column {name!r}, one of the {group} ({', '.join(names)})")
                yield JudgedRow(
                    id=name.removesuffix("_acc"),
                    votes=(),
                    domain=group,
                    extras={"rate": need_share(row, name)},
                )
            means[group] = sum(float(row[name]) for name in names) / len(names)
        for total, groups in _TOTALS.items():
            for group in groups:
                if total in row and group in means:
                    _compare(row, total, group, means[group])


SUMMARIES = Summaries()


def _compare(row: Fields, total: str, group: str, mean: float) -> None:
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
