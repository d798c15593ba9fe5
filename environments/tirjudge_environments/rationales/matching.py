"""One-to-one matching of human and judge reasons by a MetaJudge, and the measures of a matching."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge_environments.rationales.base import numbered, question, result_lines
from tirjudge_environments.templates import load_template
from tirjudge_environments.types import Malformed, Question


@dataclass(frozen=True, slots=True)
class Pair:
    """A human reason and the judge's reason that expresses it, as indices from 0."""

    human: int
    reason: int
    score: float
    """The degree of agreement, above 0 and at most 1."""


@dataclass(frozen=True, slots=True)
class Matching:
    """A one-to-one matching: no human reason and no judge reason is in two pairs."""

    pairs: tuple[Pair, ...]
    """Ordered by the human reason."""
    humans: int
    """The number of human reasons, at least 1."""
    reasons: int
    """The number of judge reasons."""

    @property
    def total(self) -> float:
        """S_total (Eq. 1): the sum of the scores."""
        return math.fsum(pair.score for pair in self.pairs)

    @property
    def recall(self) -> float:
        """The soft recall S_total / |R_h|, from 0 to 1; Rationale Consistency is its mean."""
        return self.total / self.humans

    @property
    def average_precision(self) -> float:
        """AP (Eq. 3), from 0 to 1: the mean over human reasons of the precision at each matched reason.

        Any score above 0 counts as a match, and P@k is the share of matched reasons among the first k.
        """
        matched = sorted(pair.reason for pair in self.pairs)
        return math.fsum(found / (k + 1) for found, k in enumerate(matched, 1)) / self.humans


def match(scores: Sequence[Sequence[float]], reasons: int) -> Matching:
    """Return the matching with the greatest sum of scores (Eq. 1).

    `scores[i][j]`, from 0 to 1, says how well the judge's reason j expresses the human reason i. There is a
    row of `reasons` numbers for every human reason, at least one. Pairs with score 0 are left out. Raises
    ValueError for another shape or range, and ImportError, naming the extra, without scipy.
    """
    if not scores or any(len(row) != reasons for row in scores):
        raise ValueError(f"scores must be one row of {reasons} numbers for each human reason")
    if not all(0 <= score <= 1 for row in scores for score in row):
        raise ValueError("a score lies between 0 and 1")
    pairs = _assigned(scores) if reasons else ()
    return Matching(tuple(pair for pair in pairs if pair.score > 0), len(scores), reasons)


def rationale_consistency(matchings: Sequence[Matching]) -> float:
    """Return RC (Eq. 2), from 0 to 1: the mean soft recall of at least one sample, else ValueError."""
    if not matchings:
        raise ValueError("rationale consistency is a mean over samples, and there are none")
    return math.fsum(matching.recall for matching in matchings) / len(matchings)


def _assigned(scores: Sequence[Sequence[float]]) -> tuple[Pair, ...]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(f"matching reasons needs `pip install tirjudge[eval]`: {error}") from error
    humans, reasons = linear_sum_assignment(scores, maximize=True)
    return tuple(Pair(int(i), int(j), float(scores[i][j])) for i, j in zip(humans, reasons, strict=True))


_SCORE = re.compile(
    r"[-*•]?\s*R([0-9]{1,4})\s*@\s*S([0-9]{1,4})\s*:\s*([0-9](?:\.[0-9]{1,9})?)\s*(?:\([^()]*\))?"
)
_HEADING = re.compile(r"[^@]*:")


def matching_ask(checklist: Sequence[str], reasons: Sequence[str]) -> Question:
    """Ask how well the judge's `reasons` (S1, S2, ...) express the human `checklist` (R1, R2, ...).

    Neither may be empty, since there would be nothing to ask. The prompt is that of Fig. 9.
    """
    text = load_template("rationale-matching").with_values(
        {"source_list": numbered("S", reasons), "target_list": numbered("R", checklist)}
    )
    return question(
        "matching", text, lambda answer: read_scores(answer, humans=len(checklist), reasons=len(reasons))
    )


def read_matching(answer: str, *, humans: int, reasons: int) -> Matching | Malformed:
    """Parse an answer and return its one-to-one matching.

    Fig. 9 does not forbid that an answer assigns one judge reason to several human ones. The matching then
    enforces the constraint (section 2.3).
    """
    scores = read_scores(answer, humans=humans, reasons=reasons)
    return scores if isinstance(scores, Malformed) else match(scores, reasons)


def read_scores(answer: str, *, humans: int, reasons: int) -> list[list[float]] | Malformed:
    """Parse an answer strictly into the scores for `match`: every human reason once, R1 first.

    A reason that does not exist, a number above 1, a score for no reason (S0) or any other line makes the
    answer Malformed, since a MetaJudge that loses count has not matched what it was given.
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
