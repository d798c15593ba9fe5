"""JudgeBench's output files: pairs with two judgments each, the second with the responses swapped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import judgebench_section
from tirjudge.evaluation.stored_outputs.base import (
    Fields,
    Unreadable,
    as_number,
    need,
    need_list,
    need_text,
    pair_vote,
    shown,
)

_VERDICT = re.compile(r"\[\[([AB<>=]+)\]\]")
_BEST = {"A>B": (0,), "B>A": (1,), "A<B": (1,), "B<A": (0,), "A=B": (0, 1), "B=A": (0, 1)}
_ORDERS = ((0, 1), (1, 0))


class JudgeBench:
    """Reads generative judges from their raw text, and scalar reward models from their scores.

    A pair has two judgments, or one if run_judge.py ran with `--single_game`.
    """

    name = "judgebench"
    about = "ScalerLab/JudgeBench, outputs of run_judge.py"
    benchmark = "judgebench"
    protocols = ("net-vote", "both-orders", "first-order", "second-order", "position")

    def recognises(self, row: Fields) -> bool:
        return "judgments" in row and "pair_id" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        judgments = need_list(row, "judgments")
        if not 1 <= len(judgments) <= 2:
            raise Unreadable(f"judgments has {len(judgments)} judgments, not 1 (a single game) or 2")
        votes = [_vote(judgment, order) for judgment, order in zip(judgments, _ORDERS, strict=False)]
        best = _label(row if label is None else label)
        yield JudgedRow(
            id=need_text(row, "pair_id"),
            votes=tuple(votes),
            label=best[0] if len(best) == 1 else None,
            tied=len(best) > 1,
            domain=judgebench_section(_source(row)),
        )


JUDGEBENCH = JudgeBench()


def _label(row: Fields) -> tuple[int, ...]:
    label = need(row, "label")
    if not isinstance(label, str) or label not in _BEST:
        raise Unreadable(f"label is {shown(label)}, not one of {', '.join(_BEST)}", row)
    return _BEST[label]


def _source(row: Fields) -> str:
    source = need_text(row, "source")
    if not source:
        raise Unreadable("source is empty, so that the row has no domain")
    return source


def _vote(judgment: Any, order: tuple[int, int]) -> Vote:
    """Read one judgment; the authors' code stores None for a failed one."""
    stored = _object(judgment, "judgments")
    output = _object(stored.get("judgment"), "judgments: judgment")
    scores: dict[int, float] = {}
    if output.get("scores"):
        given = need_list(output, "scores")
        if len(given) != 2:
            raise Unreadable(f"judgments: scores has {len(given)} numbers, not 2")
        first, second = (as_number(score, "judgments: scores") for score in given)
        places = pair_vote(first, second)
        scores = {order[0]: first, order[1]: second}
    else:
        text = output.get("response") or ""
        if not isinstance(text, str):
            raise Unreadable(f"judgments: response is {shown(text)}, not a text")
        decision = stored.get("decision")
        places = read_verdict(text, decision if isinstance(decision, str) else None)
    best = tuple(sorted(order[place] for place in places))
    return Vote(best=best, order=order, scores=scores, stop="verdict" if best else "malformed")


def _object(value: Any, column: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise Unreadable(f"{column} holds {shown(value)}, not an object")
    return value or {}


def read_verdict(text: str, decision: str | None = None) -> tuple[int, ...]:
    """Return the positions in first place; empty unless all verdicts `[[A>>B]]` of the text agree.

    For a text in another form, the stored `decision` counts.
    """
    found = set(_VERDICT.findall(text))
    if not found and decision is not None:
        return _BEST.get(decision, ())
    verdicts = {verdict.replace(">>", ">").replace("<<", "<") for verdict in found}
    return _BEST.get(verdicts.pop(), ()) if len(found) == 1 else ()
