"""Attacks on a judge's verdict, in families by name, and the flips that they cause.

Other packages add families by entry points. Each member is a `Family` object.
"""

from __future__ import annotations

from collections import Counter

from tirjudge.attacks.families import Attack, Family, Target, appended
from tirjudge_sandbox.registry import Plugins

ATTACKS = Plugins(
    "tirjudge.attacks",
    "family of attacks",
    "tirjudge.attacks",
    {
        "characters": "families:CHARACTERS",
        "chat-templates": "families:CHAT_TEMPLATES",
        "claims": "families:CLAIMS",
        "code": "families:CODE",
        "control": "families:CONTROL",
        "forgeries": "families:FORGERIES",
        "instructions": "families:INSTRUCTIONS",
        "lengths": "families:LENGTHS",
        "master-keys": "families:MASTER_KEYS",
    },
)
_FIRST = "control"
"""The family that all others are compared with."""


def open_families() -> tuple[Family, ...]:
    """Return every family: `control` first, the others sorted by name.

    Raises ValueError, in one line, for an entry that cannot be imported or is no family of its name, and for
    a name that two attacks, or an attack and a family, share.
    """
    named = sorted(ATTACKS.names(), key=lambda name: (name != _FIRST, name))
    families = tuple(map(_open_family, named))
    counts = Counter((*named, *(attack.name for family in families for attack in family.attacks)))
    if shared := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"{counts[shared[0]]} attacks or families of attacks are called {shared[0]!r}")
    return families


def _open_family(name: str) -> Family:
    family = ATTACKS.load(name)
    if not isinstance(family, Family) or family.name != name:
        raise ValueError(f"family of attacks {name!r}: its entry point names no Family called {name!r}")
    return family


__all__ = ["Attack", "Family", "Target", "appended", "open_families"]
