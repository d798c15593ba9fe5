"""Comparison of a judge's reasons with human reasons: prompts, readers, matching and measures."""

from tirjudge_environments.rationales.decomposition import (
    Decomposition,
    decomposition_ask,
    read_decomposition,
)
from tirjudge_environments.rationales.flaws import (
    FLAWS,
    FlawShares,
    Grounding,
    Label,
    flaws_ask,
    read_flaws,
)
from tirjudge_environments.rationales.matching import (
    Matching,
    Pair,
    match,
    matching_ask,
    rationale_consistency,
    read_matching,
)
from tirjudge_environments.rationales.reasons import Assessment, read_assessment

__all__ = [
    "FLAWS",
    "Assessment",
    "Decomposition",
    "FlawShares",
    "Grounding",
    "Label",
    "Matching",
    "Pair",
    "decomposition_ask",
    "flaws_ask",
    "match",
    "matching_ask",
    "rationale_consistency",
    "read_assessment",
    "read_decomposition",
    "read_flaws",
    "read_matching",
]
