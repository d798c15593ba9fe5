"""Comparison of a judge's reasons with human reasons: prompts, readers, matching and measures."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tirjudge_environments.messages import conversation_text
from tirjudge_environments.quoting import with_look_alikes
from tirjudge_environments.templates import load_template
from tirjudge_environments.types import Malformed, Message, Prompt, Question

START, END = "<RESULT_START>", "<RESULT_END>"


def _filled(name: str, values: Mapping[str, str]) -> str:
    """Return a prompt, with look-alikes in the texts of others (see `with_look_alikes`)."""
    shown = {slot: with_look_alikes(value, ("RESULT_START", "RESULT_END")) for slot, value in values.items()}
    return load_template(name).with_values(shown)


def question(kind: str, text: str, read: Callable[[str], object]) -> Question:
    """Build a question with a hash of the text as key.

    `read` parses an answer; if `read` returns Malformed, the question is asked again.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Question(
        key=f"{kind}-{digest}",
        prompt=Prompt(messages=(Message("user", text),)),
        readable=lambda answer: not isinstance(read(answer), Malformed),
    )


def numbered(letter: str, points: Sequence[str]) -> str:
    """Return the points as lines `S1: ...`; line breaks inside a point become spaces."""
    return "\n".join(f"{letter}{number}: {' '.join(point.split())}" for number, point in enumerate(points, 1))


def result_lines(text: str) -> list[str] | None:
    """Return the lines between the last `<RESULT_START>` and the next `<RESULT_END>`; None without both."""
    start = text.rfind(START)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return None
    return text[start + len(START) : end].splitlines()


_BOXED = re.compile(r"\\boxed\{\s*([AB])\s*(>>?|<<?|=)\s*([AB])\s*\}")
_ITEM = re.compile(r"([ \t]*)(?:[-*•]|[0-9]{1,3}[.)])((?:[ \t].*)?)")
_FINAL = re.compile(r"\W*final assessment result\b", re.IGNORECASE)
_BOX = "\\boxed{"
_LONGEST_BOX = 40


@dataclass(frozen=True, slots=True)
class Assessment:
    """A parsed answer, before letters are converted to candidates."""

    reasons: tuple[str, ...]
    """The reasons in order, each in one line."""
    preferred: str
    """`A` or `B`; empty for a tie."""
    strength: int
    """2 for significantly, 1 for slightly, 0 for a tie."""
    contested: bool = False
    """True if another box of the text holds another verdict."""


def read_assessment(text: str) -> Assessment | Malformed:
    r"""Parse the last `<RESULT_START>` ... `<RESULT_END>` of a text: its list and its last `\boxed{}`.

    `A<B` and `A<<B`, as the paper's own tables write it, are read as `B>A` and `B>>A`.
    """
    lines = result_lines(text)
    if lines is None:
        return Malformed("no <RESULT_START> with a <RESULT_END> behind it")
    boxes = [number for number, line in enumerate(lines) if _BOX in line]
    if not boxes:
        return Malformed("no \\boxed{} in the result")
    verdict = _verdict(lines[boxes[-1]])
    if verdict is None:
        return Malformed("the last \\boxed{} is none of the five results")
    headings = [number for number, line in enumerate(lines[: boxes[-1] + 1]) if _FINAL.match(line)]
    end = headings[-1] if headings else boxes[-1]
    boxed = {_verdict(line) for line in text.splitlines() if _BOX in line} - {None}
    return Assessment(tuple(_items(lines[:end])), *verdict, contested=len(boxed) > 1)


def _verdict(line: str) -> tuple[str, int] | None:
    box = line[line.rindex(_BOX) :][:_LONGEST_BOX]
    found = _BOXED.match(box)
    if found is None or found[1] == found[3]:
        return None
    left, sign, right = found.groups()
    if sign == "=":
        return "", 0
    return (left if sign[0] == ">" else right), len(sign)


def _items(lines: Iterable[str]) -> list[str]:
    """Return the list items; continuation lines and deeper items are joined to the item above."""
    items: list[list[str]] = []
    indent: int | None = None
    for line in lines:
        found = _ITEM.fullmatch(line)
        if found is not None and (indent is None or len(found[1]) <= indent):
            indent = len(found[1]) if indent is None else indent
            items.append([found[2]])
        elif items:
            items[-1].append(line)
    joined = (" ".join(" ".join(parts).split()) for parts in items)
    return [item for item in joined if item]


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
    text = _filled(
        "rationale-decomposition",
        {
            "history": conversation_text(history) if history else "",
            "query": query.content,
            "response_1": responses[0],
            "response_2": responses[1],
            "str_brief": summary,
            "str_eval": evaluation,
        },
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
    text = _filled(
        "rationale-matching", {"source_list": numbered("S", reasons), "target_list": numbered("R", checklist)}
    )
    return question(
        "matching", text, lambda answer: read_scores(answer, humans=len(checklist), reasons=len(reasons))
    )


def read_matching(answer: str, *, humans: int, reasons: int) -> Matching | Malformed:
    """Parse an answer and return its one-to-one matching.

    Fig. 9 lets an answer assign one judge reason to several human reasons. The matching then enforces the
    constraint (section 2.3).
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
