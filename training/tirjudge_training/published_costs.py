"""The authors' training costs, which a plan is compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedCost:
    """The cost of TIR-Judge's 8B model with one method (TIR App. F, Table 8)."""

    sft: float
    """Hours of 8 H100; so are `rejection` and `rl`."""
    rejection: float
    rl: float
    compute: float
    """Dollars for the devices, approximately."""
    teacher: float
    """Dollars for the teacher's API, approximately."""

    @property
    def hours(self) -> float:
        """Hours of 8 H100 in total."""
        return self.sft + self.rejection + self.rl
