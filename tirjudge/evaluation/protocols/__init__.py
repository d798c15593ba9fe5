"""Scoring protocols by name, those of other packages included.

Each member is a `ScoringProtocol` object; a module may define several variants of one rule.
"""

from __future__ import annotations

from tirjudge.evaluation.base import ScoringProtocol
from tirjudge_sandbox.registry import Plugins

PROTOCOLS = Plugins(
    "tirjudge.protocols",
    "protocol",
    "tirjudge.evaluation.protocols",
    {
        "both-orders": "accuracy:BOTH_ORDERS",
        "cost": "cost:COST",
        "errors": "errors:ERRORS",
        "every-order": "accuracy:EVERY_ORDER",
        "first-order": "accuracy:FIRST_ORDER",
        "kappa": "agreement:KAPPA",
        "mean-score": "samples:MEAN_SCORE",
        "net-vote": "accuracy:NET_VOTE",
        "one-order": "accuracy:ONE_ORDER",
        "position": "position:POSITION",
        "ppe": "accuracy:PPE",
        "rationale-consistency": "rationale_consistency:RATIONALE_CONSISTENCY",
        "rewardbench": "rewardbench:REWARD_BENCH",
        "rewardbench-strict": "rewardbench:REWARD_BENCH_STRICT",
        "rewardbench2": "rewardbench2:REWARDBENCH2",
        "rewardbench2-ties": "rewardbench2:REWARDBENCH2_TIES",
        "rm-bench": "rm_bench:RM_BENCH",
        "rm-bench-tie-half": "rm_bench:RM_BENCH_TIE_HALF",
        "rmb": "rmb:RMB",
        "second-order": "accuracy:SECOND_ORDER",
        "self-consistency": "samples:SELF_CONSISTENCY",
        "summary": "summary:SUMMARY",
        "three-class": "agreement:THREE_CLASS",
        "three-class-both-orders": "agreement:THREE_CLASS_BOTH_ORDERS",
        "three-class-f1-of-means": "agreement:THREE_CLASS_F1_OF_MEANS",
        "tir": "accuracy:TIR",
        "two-class": "agreement:TWO_CLASS",
        "win-rate": "win_rate:WIN_RATE",
    },
)
OTHER_NAMES = {"tie-half": "tir", "tie-wrong": "one-order", "best-of-k": "rewardbench2"}
"""Aliases that name a rule by its only relevant property: the credit of a tie, or one right response of k."""


def open_protocol(name: str) -> ScoringProtocol:
    """Return the protocol of this name or alias. Raises ValueError, in one line, for an unknown name."""
    name = OTHER_NAMES.get(name, name)
    if name not in PROTOCOLS.names():
        raise ValueError(f"no protocol {name!r}; there are {', '.join(protocol_names())}")
    protocol: ScoringProtocol = PROTOCOLS.load(name)
    return protocol


def protocol_names() -> tuple[str, ...]:
    """Return the names of all protocols, sorted, followed by the aliases."""
    return (*PROTOCOLS.names(), *OTHER_NAMES)


def all_protocols() -> tuple[ScoringProtocol, ...]:
    """Return every protocol, sorted by name. Raises ValueError for an entry that cannot be imported."""
    return tuple(map(open_protocol, PROTOCOLS.names()))
