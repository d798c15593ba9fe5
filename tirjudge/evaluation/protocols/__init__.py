"""Scoring protocols by name, with the protocols of other packages.

Each member is a `ScoringProtocol` object; a module may define several variants of one rule.
"""

from __future__ import annotations

from tirjudge.evaluation.judged_rows import ScoringProtocol
from tirjudge_sandbox.registry import Plugins

PROTOCOLS = Plugins(
    "tirjudge.protocols",
    "protocol",
    "tirjudge.evaluation",
    {
        "arena-hard": "protocols.win_rate:ARENA_HARD",
        "both-orders": "protocols.accuracy:BOTH_ORDERS",
        "cost": "protocols.behaviour:COST",
        "errors": "protocols.behaviour:ERRORS",
        "every-order": "protocols.accuracy:EVERY_ORDER",
        "first-order": "protocols.accuracy:FIRST_ORDER",
        "kappa": "protocols.agreement:KAPPA",
        "kappa-one-order": "protocols.agreement:KAPPA_ONE_ORDER",
        "length-controlled": "protocols.length_controlled:LENGTH_CONTROLLED_PROTOCOL",
        "mean-score": "protocols.samples:MEAN_SCORE",
        "net-vote": "protocols.accuracy:NET_VOTE",
        "one-order": "protocols.accuracy:ONE_ORDER",
        "plan-rewardbench": "protocols.accuracy:PLAN_REWARDBENCH",
        "position": "protocols.behaviour:POSITION",
        "ppe": "protocols.accuracy:PPE",
        "ratings": "protocols.ratings:RATINGS_PROTOCOL",
        "rationale-consistency": "benchmarks.rationale_rm:RATIONALE_CONSISTENCY_PROTOCOL",
        "rewardbench": "benchmarks.rewardbench:REWARDBENCH_PROTOCOL",
        "rewardbench-strict": "benchmarks.rewardbench:REWARDBENCH_STRICT_PROTOCOL",
        "rewardbench2": "benchmarks.rewardbench2:REWARDBENCH2_PROTOCOL",
        "rewardbench2-overall": "benchmarks.rewardbench2:REWARDBENCH2_OVERALL_PROTOCOL",
        "rewardbench2-ties": "benchmarks.rewardbench2:REWARDBENCH2_TIES_PROTOCOL",
        "rm-bench": "benchmarks.rm_bench:RM_BENCH_PROTOCOL",
        "rm-bench-tie-half": "benchmarks.rm_bench:RM_BENCH_TIE_HALF_PROTOCOL",
        "rmb": "benchmarks.rmb:RMB_PROTOCOL",
        "second-order": "protocols.accuracy:SECOND_ORDER",
        "self-consistency": "protocols.samples:SELF_CONSISTENCY",
        "summary": "stored_outputs.summaries:SUMMARY_PROTOCOL",
        "three-class": "protocols.agreement:THREE_CLASS",
        "three-class-both-orders": "protocols.agreement:THREE_CLASS_BOTH_ORDERS",
        "three-class-f1-of-means": "protocols.agreement:THREE_CLASS_F1_OF_MEANS",
        "tir": "protocols.accuracy:TIR",
        "two-class": "protocols.agreement:TWO_CLASS",
        "verdict": "protocols.accuracy:VERDICT",
        "win-rate": "protocols.win_rate:WIN_RATE",
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
