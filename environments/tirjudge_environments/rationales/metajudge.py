"""MetaJudge: another model says how far a judge's reasons express those of people (Fig. 9)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tirjudge_environments.rationales.matching import Matching, match
from tirjudge_environments.rationales.question import numbered, question, result_lines
from tirjudge_environments.templates import load_template
from tirjudge_environments.types import Ask, Malformed

_SCORE = re.compile(
    r"[-*•]?\s*R([0-9]{1,4})\s*@\s*S([0-9]{1,4})\s*:\s*([0-9](?:\.[0-9]{1,9})?)\s*(?:\([^()]*\))?"
)
_HEADING = re.compile(r"[^@]*:")


def matching_ask(checklist: Sequence[str], reasons: Sequence[str]) -> Ask:
    """How far the judge's `reasons` (S1, S2, ...) express the human `checklist` (R1, R2, ...).

    Neither may be empty: there would be nothing to ask.
    """
    text = load_template("rationale-matching").with_values(
        {"source_list": numbered("S", reasons), "target_list": numbered("R", checklist)}
    )
    return question(
        "matching", text, lambda answer: read_scores(answer, humans=len(checklist), reasons=len(reasons))
    )


def read_matching(answer: str, *, humans: int, reasons: int) -> Matching | Malformed:
    """The one-to-one matching that an answer comes to.

    Where it gives one reason of the judge to several human ones, which Fig. 9 does not forbid, the best of
    them keeps it (section 2.3): the constraint is ours to enforce and not the model's.
    """
    scores = read_scores(answer, humans=humans, reasons=reasons)
    return scores if isinstance(scores, Malformed) else match(scores, reasons)


def read_scores(answer: str, *, humans: int, reasons: int) -> list[list[float]] | Malformed:
    """Scores as `match` takes them: read strictly, every human reason once, R1 first.

    A reason that does not exist, a number above 1, a score for no reason (S0) or any other line makes the
    answer Malformed: a MetaJudge that loses count has not matched what it was given.
    """
    lines = result_lines(answer)
    if lines is None:
        return Malformed("no <RESULT_START> with a <RESULT_END> behind it")
    scores: list[list[float]] = []
    for line in filter(None, map(str.strip, lines)):
        found = _SCORE.fullmatch(line)
        if found is None:
            if scores or not _HEADING.fullmatch(line):
                return Malformed(f"no line of the form Rx@Sy: {line[:80]!r}")
            continue
        human, reason, score = int(found[1]), int(found[2]), float(found[3])
        if human != len(scores) + 1:
            return Malformed(f"R{human} stands where R{len(scores) + 1} is due")
        if reason > reasons or score > 1 or (reason == 0 and score > 0):
            return Malformed(f"R{human}@S{reason} with {score:g}: there are S1 to S{reasons}, 0 to 1")
        scores.append([score if column == reason else 0.0 for column in range(1, reasons + 1)])
    if len(scores) != humans:
        return Malformed(f"{len(scores)} scores for {humans} reference items")
    return scores
