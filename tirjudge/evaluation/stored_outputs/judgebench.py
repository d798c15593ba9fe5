"""JudgeBench's output files: pairs with two judgments each, the second with the responses swapped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tirjudge.evaluation.base import JudgedRow, Vote
from tirjudge.evaluation.benchmark_labels import judgebench_section
from tirjudge.evaluation.stored_outputs.base import Fields, pair_vote

_VERDICT = re.compile(r"\[\[([AB<>=]+)\]\]")
_BEST = {"A>B": (0,), "B>A": (1,), "A<B": (1,), "B<A": (0,), "A=B": (0, 1), "B=A": (0, 1)}
_ORDERS = ((0, 1), (1, 0))


class JudgeBench:
    """Reads generative judges from their raw text, and scalar reward models from their scores."""

    name = "judgebench"
    about = "ScalerLab/JudgeBench, outputs of run_judge.py"
    benchmark = "judgebench"
    protocols = ("net-vote", "both-orders", "first-order", "second-order", "position")

    def recognises(self, row: Fields) -> bool:
        return "judgments" in row and "pair_id" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        votes = [_vote(judgment, order) for judgment, order in zip(row["judgments"], _ORDERS, strict=True)]
        yield JudgedRow(
            id=row["pair_id"],
            votes=tuple(votes),
            label=_BEST[row["label"]][0],
            domain=judgebench_section(row["source"]),
        )


JUDGEBENCH = JudgeBench()


def _vote(judgment: Mapping[str, Any] | None, order: tuple[int, int]) -> Vote:
    """Read one judgment; the authors' code stores None for a failed one."""
    output = (judgment or {}).get("judgment") or {}
    scores: dict[int, float] = {}
    if output.get("scores"):
        shown = pair_vote(*output["scores"])
        scores = dict(zip(order, output["scores"], strict=True)) if shown else {}
    else:
        shown = read_verdict(output.get("response") or "", (judgment or {}).get("decision"))
    best = tuple(sorted(order[place] for place in shown))
    return Vote(best=best, order=order, scores=scores, stop="verdict" if best else "malformed")


def read_verdict(text: str, decision: str | None = None) -> tuple[int, ...]:
    """Return the positions in first place; empty unless all verdicts `[[A>>B]]` of the text agree.

    For a text in another form, the stored `decision` counts.
    """
    found = set(_VERDICT.findall(text))
    if not found and decision is not None:
        return _BEST.get(decision, ())
    verdicts = {verdict.replace(">>", ">").replace("<<", "<") for verdict in found}
    return _BEST.get(verdicts.pop(), ()) if len(found) == 1 else ()
