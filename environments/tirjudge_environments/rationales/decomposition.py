"""Atomic decomposition: another model turns human remarks on two responses into a checklist (Fig. 6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge_environments.rationales.base import question, result_lines
from tirjudge_environments.templates import conversation_text, load_template
from tirjudge_environments.types import Malformed, Message, Question

SIZES = range(3, 8)
"""Sizes of checklists in HelpSteer3-Atomic: 3 to 7 points (section 2.1)."""

_COUNT = re.compile(r"CLAIM_COUNT\s*=\s*([0-9]{1,4})")
_CLAIM = re.compile(r"[-*•]?\s*C([0-9]{1,4})\s*:\s*(\S.*)")
_IGNORED = re.compile(r"[-*•]\s*(\S.*)")


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A checklist made from human remarks."""

    claims: tuple[str, ...]
    """The checklist; empty if the remarks are not specific."""
    ignored: tuple[str, ...] = ()
    """Remarks that were left out, each with the reason."""


def decomposition_ask(
    conversation: Sequence[Message], responses: Sequence[str], *, summary: str, evaluation: str
) -> Question:
    """Ask for the points of `summary`, made concrete by `evaluation`.

    `summary` is people's reasoning for their preference, and `evaluation` what they wrote about each
    response. Raises ValueError unless there are two responses and a conversation.
    """
    if len(responses) != 2 or not conversation:
        raise ValueError("a decomposition takes a conversation and two responses")
    *history, query = conversation
    text = load_template("rationale-decomposition").with_values(
        {
            "history": conversation_text(history) if history else "",
            "query": query.content,
            "response_1": responses[0],
            "response_2": responses[1],
            "str_brief": summary,
            "str_eval": evaluation,
        }
    )
    return question("decomposition", text, read_decomposition)


def read_decomposition(answer: str) -> Decomposition | Malformed:
    """Parse an answer strictly: as many claims as CLAIM_COUNT says, numbered from C1."""
    lines = result_lines(answer)
    if lines is None:
        return Malformed("no <RESULT_START> with a <RESULT_END> behind it")
    kept = [line.strip() for line in lines if line.strip()]
    if len(kept) < 2 or not (count := _COUNT.fullmatch(kept[0])) or kept[1] != "CLAIMS:":
        return Malformed("the result does not begin with CLAIM_COUNT= and CLAIMS:")
    rest = kept[2:]
    cut = rest.index("IGNORED_SUMMARY:") if "IGNORED_SUMMARY:" in rest else len(rest)
    claims: list[str] = []
    for line in rest[:cut]:
        found = _CLAIM.fullmatch(line)
        if found is None or int(found[1]) != len(claims) + 1:
            return Malformed(f"no claim C{len(claims) + 1}: {line[:80]!r}")
        claims.append(found[2])
    if len(claims) != int(count[1]):
        return Malformed(f"{len(claims)} claims where CLAIM_COUNT is {int(count[1])}")
    ignored = (_IGNORED.fullmatch(line) for line in rest[cut + 1 :])
    return Decomposition(tuple(claims), tuple(found[1] for found in ignored if found))
