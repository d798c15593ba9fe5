"""All composed kinds of rules by name and group, and the kinds that no training row contains.

A group is what the rules of its kinds are about. The held-out kinds and groups were drawn by a seed before
any training; the draw leaves out groups to which one of the 31 families belongs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from research.smol.training_rows.families.base import Family
from research.smol.training_rows.kinds.catalogue import composed_kinds
from research.smol.training_rows.kinds.characters import CHARACTERS
from research.smol.training_rows.kinds.rules.base import Rule
from research.smol.training_rows.kinds.rules.json_values import JSON
from research.smol.training_rows.kinds.rules.keyed import XML, YAML
from research.smol.training_rows.kinds.rules.programs import PROGRAMS
from research.smol.training_rows.kinds.rules.tables import CSV, TABLES
from research.smol.training_rows.kinds.rules.templates import TEMPLATES
from research.smol.training_rows.kinds.rules.texts import TEXTS
from research.smol.training_rows.kinds.shapes import Count, Every, Kind
from research.smol.training_rows.kinds.tokens import TOKENS
from research.smol.training_rows.kinds.units import HEADINGS

_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("emails", "links", "hashtags", "mentions", "files"), "addresses"),
    **dict.fromkeys(("dates", "times", "years", "phones", "versions", "prices", "colours"), "values"),
    **dict.fromkeys(("numbers", "percents", "fractions", "decimals", "ordinals", "ranges"), "arithmetic"),
    **dict.fromkeys(("weights", "distances", "degrees"), "measures"),
    **dict.fromkeys(("quotes", "asides", "brackets", "hyphenated", "contractions"), "punctuation"),
    **dict.fromkeys(("bolds", "codes", "placeholders", "footnotes", "emoji"), "markup"),
    **dict.fromkeys(
        ("checkboxes", "quoted_lines", "rows", "dividers", "speeches", "blocks", "headings"), "structure"
    ),
    **dict.fromkeys(("acronyms", "shouted"), "case"),
    **dict.fromkeys(
        ("cyrillic", "greek", "arabic", "hebrew", "hangul", "kana", "hanzi", "devanagari", "accents"),
        "alphabets",
    ),
}
DOCUMENTS: Mapping[str, tuple[Rule, ...]] = {
    "json": JSON,
    "csv": CSV,
    "tables": TABLES,
    "yaml": YAML,
    "xml": XML,
}
"""Rules by the kind of document, which only go together with rules of the same kind."""
NUMBERED = {
    "sentences": "length_constraints:number_sentences",
    "items": "detectable_format:number_bullet_lists",
    "steps": "own:numbered_list",
    "lines": "own:number_lines",
    "headings": "count:headings",
}
"""The family or kind that counts a unit, by the unit's name."""
SEED = 56
"""Seed of the held-out kinds and groups."""
HELD_OUT_KINDS, HELD_OUT_GROUPS = 24, 2
TRAINED_BEFORE = {
    "words",
    "letters",
    "alphabets",
    "case",
    "lengths",
    "structure",
    "markup",
    "template",
    "json",
    "position",
    "punctuation",
}
"""Groups to which one of the 31 families belongs."""
_SMALLEST_GROUP = 4


def all_kinds() -> Iterator[Kind]:
    """Yield every composed kind."""
    yield from (Count(unit, _GROUPS[unit.name]) for unit in (*TOKENS, HEADINGS))
    yield from CHARACTERS
    yield from composed_kinds()
    yield from (*TEXTS, *TEMPLATES, *PROGRAMS)
    for rules in DOCUMENTS.values():
        yield from rules


KINDS: Mapping[str, Kind] = {kind.id: kind for kind in all_kinds()}
DOCUMENT: Mapping[str, str] = {rule.id: name for name, rules in DOCUMENTS.items() for rule in rules}
"""The kind of document of each kind that is about one."""


def draw_held_out(seed: int = SEED) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kinds and the groups that no training row contains, both sorted by name.

    The kinds are drawn from the other groups.
    """
    rng = random.Random(f"held-out kinds/{seed}")
    groups: dict[str, list[str]] = {}
    for kind in KINDS.values():
        groups.setdefault(kind.group, []).append(kind.id)
    whole = sorted(
        name for name, kinds in groups.items() if name not in TRAINED_BEFORE and len(kinds) >= _SMALLEST_GROUP
    )
    left_out = tuple(sorted(rng.sample(whole, HELD_OUT_GROUPS)))
    others = sorted(kind.id for kind in KINDS.values() if kind.group not in left_out)
    return tuple(sorted(rng.sample(others, HELD_OUT_KINDS))), left_out


UNSEEN_KINDS = (
    "count:asides",
    "count:commas",
    "count:contractions",
    "count:digits",
    "count:hangul",
    "count:links",
    "every:headings_lower",
    "every:headings_words",
    "every:paragraphs_links",
    "every:paragraphs_start_word",
    "every:sentences_words",
    "every:steps_no_mark",
    "placed:first_lines_upper",
    "placed:last_lines_is_word",
    "placed:last_paragraphs_words",
    "rule:code_comment",
    "rule:json_count",
    "rule:sum",
    "rule:table_header",
    "rule:yaml_count",
    "some:lines_end_mark",
    "some:numbers_even",
    "some:paragraphs_words",
    "some:sentences_digit",
)
UNSEEN_GROUPS = ("csv", "order")
"""The result of `draw_held_out()`: kinds and groups of which no training row holds any."""


def unseen(kind: Kind) -> bool:
    """Return True if no training row may hold the kind."""
    return kind.id in UNSEEN_KINDS or kind.group in UNSEEN_GROUPS


def trained_kinds() -> list[str]:
    """Return the composed kinds that training rows may contain, sorted by name."""
    return sorted(kind.id for kind in KINDS.values() if not unseen(kind))


def follows(counts: Family, kind: Family) -> bool:
    """Return True if a kind is about every one of the units whose number the other one asks for."""
    return isinstance(kind, Every) and NUMBERED.get(kind.unit.name) == counts.id
