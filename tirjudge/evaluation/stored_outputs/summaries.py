"""RM-R1's summaries of RewardBench, RM-Bench and RMB: rates by section, without rows."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge.evaluation.base import JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields

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


class Summaries:
    """Each rate in a known group becomes a row."""

    name = "rm-r1-summary"
    about = "RM-R1-UIUC/RM-R1: rates by section, domain and difficulty"
    benchmark = ""
    protocols = ("summary",)

    def recognises(self, row: Fields) -> bool:
        return any(all(name in row for name in names) for names in _GROUPS.values())

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        for group, names in _GROUPS.items():
            for name in names:
                if name in row:
                    yield JudgedRow(
                        id=name.removesuffix("_acc"),
                        votes=(),
                        domain=group,
                        extras={"rate": float(row[name])},
                    )


SUMMARIES = Summaries()
