"""Scoring protocols by name, including third parties', from the entry-point group `tirjudge.protocols`.

Each entry point names a `ScoringProtocol` object; a module may define several variants of one rule.
"""

from __future__ import annotations

from tirjudge.evaluation.base import ScoringProtocol
from tirjudge_sandbox.registry import Plugins

PROTOCOLS = Plugins("tirjudge.protocols", "protocol")
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
