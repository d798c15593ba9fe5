"""Attacks on a judge's verdict, in families, and the flips that they cause."""

from tirjudge.attacks.base import Attack, Family, Target
from tirjudge.attacks.characters import CHARACTERS
from tirjudge.attacks.chat_templates import CHAT_TEMPLATES
from tirjudge.attacks.claims import CLAIMS, CONTROL
from tirjudge.attacks.code import CODE
from tirjudge.attacks.forgeries import FORGERIES
from tirjudge.attacks.instructions import INSTRUCTIONS
from tirjudge.attacks.lengths import LENGTHS
from tirjudge.attacks.master_keys import MASTER_KEYS

FAMILIES: tuple[Family, ...] = (
    CONTROL,
    FORGERIES,
    CHAT_TEMPLATES,
    INSTRUCTIONS,
    MASTER_KEYS,
    LENGTHS,
    CHARACTERS,
    CLAIMS,
    CODE,
)

__all__ = ["FAMILIES", "Attack", "Family", "Target"]
