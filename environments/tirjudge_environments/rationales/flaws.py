"""Labels of a judge's reasons: three kinds of grounding and seven flaws (section 4.5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from tirjudge_environments.rationales.base import numbered, question, result_lines
from tirjudge_environments.templates import conversation_text, load_template
from tirjudge_environments.types import Malformed, Message, Question

FLAWS: Mapping[str, str] = {
    "F1": "style only",
    "F2": "generic correctness",
    "F3": "generic relevance",
    "F4": "single-sided praise",
    "F5": "unfalsifiable",
    "F6": "non sequitur",
    "F7": "contradiction",
}

_LABEL = re.compile(r"[-*•]?\s*S([0-9]{1,4})\s*:\s*(EG|CG|GS)((?:[ ,]+F[1-7])*)")


class Grounding(StrEnum):
    """The basis of a reason: evidence, a criterion, or a generic statement."""

    EVIDENCE = "EG"
    CRITERION = "CG"
    GENERIC = "GS"


@dataclass(frozen=True, slots=True)
class Label:
    """The labels of one reason."""

    grounding: Grounding
    flaws: frozenset[str]
    """Names of FLAWS."""


@dataclass(frozen=True, slots=True)
class FlawShares:
    """Shares over the single reasons of many lists, as in Fig. 4 and 5, each from 0 to 1."""

    reasons: int
    grounding: Mapping[Grounding, float]
    flaws: Mapping[str, float]

    @classmethod
    def of(cls, lists: Iterable[Sequence[Label]]) -> Self:
        """Count the labels of all lists; raises ValueError if no list has a reason."""
        labels = [label for one in lists for label in one]
        if not labels:
            raise ValueError("there are no reasons to take shares of")
        grounding = Counter(label.grounding for label in labels)
        flaws = Counter(flaw for label in labels for flaw in label.flaws)
        return cls(
            len(labels),
            {kind: grounding[kind] / len(labels) for kind in Grounding},
            {flaw: flaws[flaw] / len(labels) for flaw in FLAWS},
        )


def flaws_ask(conversation: Sequence[Message], responses: Sequence[str], reasons: Sequence[str]) -> Question:
    """Ask for the labels of a judge's reasons, at least one; responses in the order shown to the judge.

    The paper defines the labels and does not print its prompt; this one is ours.
    """
    text = load_template("rationale-flaws").with_values(
        {
            "prompt": conversation_text(conversation),
            "response_a": responses[0],
            "response_b": responses[1],
            "reasons": numbered("S", reasons),
        }
    )
    return question("flaws", text, lambda answer: read_flaws(answer, len(reasons)))


def read_flaws(answer: str, reasons: int) -> tuple[Label, ...] | Malformed:
    """Parse an answer strictly: one line `Sx: GROUNDING FLAWS` per reason, in order."""
    lines = result_lines(answer)
    if lines is None:
        return Malformed("no <RESULT_START> with a <RESULT_END> behind it")
    labels: list[Label] = []
    for line in filter(None, map(str.strip, lines)):
        found = _LABEL.fullmatch(line)
        if found is None or int(found[1]) != len(labels) + 1:
            return Malformed(f"no label of S{len(labels) + 1}: {line[:80]!r}")
        labels.append(Label(Grounding(found[2]), frozenset(re.findall("F[1-7]", found[3]))))
    if len(labels) != reasons:
        return Malformed(f"{len(labels)} labels for {reasons} reasons")
    return tuple(labels)
