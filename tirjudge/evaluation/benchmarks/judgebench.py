"""JudgeBench: pairs of one model's responses to hard questions, and its authors' outputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import JudgedRow, Vote
from tirjudge.evaluation.stored_outputs.base import (
    Record,
    Unreadable,
    as_number,
    need,
    need_list,
    need_text,
    pair_vote,
    shown,
)

_SECTIONS = {
    "mmlu-pro": "knowledge",
    "livebench-reasoning": "reasoning",
    "livebench-math": "math",
    "livecodebench": "coding",
}


@lru_cache(maxsize=100)
def section_of(source: str) -> str:
    """Return knowledge, reasoning, math or coding for a JudgeBench row's `source`, otherwise the source."""
    return next((section for start, section in _SECTIONS.items() if source.startswith(start)), source)


_HUB = "ScalerLab/JudgeBench"


def _read(row: PublishedRow) -> Iterator[Fields]:
    yield {
        "id": row.need("pair_id"),
        "prompt": row.need("question"),
        "responses": [row.need("response_A"), row.need("response_B")],
        "label": row.need("label"),
        "domain": section_of(str(row.need("source"))),
        "tags": [f"source={row.need('source')}"],
    }


JUDGEBENCH = Benchmark(
    name="judgebench",
    about="Which response is right: knowledge, reasoning, math, coding (Tan et al. 2024)",
    parts=(
        Part(name="gpt", hub=_HUB, split="gpt", rows=350, ids="9c52981cabb62245"),
        Part(name="claude", hub=_HUB, split="claude", rows=270),
    ),
    standard=("gpt",),
    columns={
        "pair_id": "id",
        "source": "mmlu-pro-..., livebench-reasoning, livebench-math or livecodebench",
        "question": "prompt",
        "response_A": "a response",
        "response_B": "the other",
        "label": "A>B or B>A",
    },
    protocols=("net-vote", "both-orders", "one-order", "first-order", "second-order", "position", "tir"),
    licence="none stated",
    order="both",
    read=_read,
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

    def recognises(self, row: Record) -> bool:
        return "judgments" in row and "pair_id" in row

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
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
            domain=section_of(_source(row)),
        )


JUDGEBENCH_OUTPUTS = JudgeBench()


def _label(row: Record) -> tuple[int, ...]:
    label = need(row, "label")
    if not isinstance(label, str) or label not in _BEST:
        raise Unreadable(f"label is {shown(label)}, not one of {', '.join(_BEST)}", row)
    return _BEST[label]


def _source(row: Record) -> str:
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
    if scores:
        return Vote(best=_candidates(places, order), order=order, scores=scores, stop="verdict")
    return _vote_on(places, order)


@lru_cache(maxsize=100)
def _vote_on(places: tuple[int, ...], order: tuple[int, int]) -> Vote:
    """Return a vote without scores, of which there are few different ones."""
    return Vote(best=_candidates(places, order), order=order, stop="verdict" if places else "malformed")


def _candidates(places: tuple[int, ...], order: tuple[int, int]) -> tuple[int, ...]:
    return tuple(sorted(order[place] for place in places))


def _object(value: Any, column: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise Unreadable(f"{column} holds {shown(value)}, not an object")
    return value or {}


def read_verdict(text: str, decision: str | None = None) -> tuple[int, ...]:
    """Return the positions in first place; empty unless all verdicts, as in `[[A>>B]]`, are equal.

    For a text in another form, the stored `decision` counts.
    """
    found = set(_VERDICT.findall(text))
    if not found and decision is not None:
        return _BEST.get(decision, ())
    verdicts = {verdict.replace(">>", ">").replace("<<", "<") for verdict in found}
    return _BEST.get(verdicts.pop(), ()) if len(found) == 1 else ()
