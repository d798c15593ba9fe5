"""Result files of `tirjudge judge` and `tirjudge eval`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from tirjudge.evaluation.base import DECISION, Cost, Index, JudgedRow
from tirjudge.evaluation.stored_outputs.base import SHAPE_TAGS, Fields, Unreadable, need, read_choice
from tirjudge.evaluation.stored_outputs.recorded_views import (
    Count,
    CriterionShape,
    ProgramShape,
    ViewShape,
    candidates_shown,
    criteria_votes,
    recorded_programs,
    recorded_votes,
)


class _Program(ProgramShape):
    kind: str


class _Passage(BaseModel):
    kind: str


def _passage_tag(passage: Any) -> str:
    kind = passage.get("kind") if isinstance(passage, Mapping) else None
    return SHAPE_TAGS[0] if kind == "program" else SHAPE_TAGS[1]


class _View(ViewShape):
    criterion: Index | None = None
    segments: list[
        Annotated[
            Annotated[_Program, Tag(SHAPE_TAGS[0])] | Annotated[_Passage, Tag(SHAPE_TAGS[1])],
            Discriminator(_passage_tag),
        ]
    ]


class _Result(BaseModel):
    model_config = ConfigDict(strict=True)

    id: Any
    label: Index | None
    strength: Any = None
    domain: str
    tags: list[str]
    views: Annotated[list[_View], Field(min_length=1)]
    criteria: list[CriterionShape] = Field(default_factory=list)
    programs: Count
    prompt_tokens: Count
    completion_tokens: Count
    seconds: Count


class TirjudgeResults:
    """Each line is a row with the views in which it was judged."""

    name = "tirjudge"
    about = "result files of tirjudge"
    benchmark = ""
    protocols = ("tir", "rationale-consistency", "errors", "cost")
    shape = TypeAdapter(_Result)

    def recognises(self, row: Fields) -> bool:
        return "views" in row and "stop" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        views: Sequence[Mapping[str, Any]] = row["views"]
        candidates = candidates_shown(views)
        best, tied = row["label"], row.get("strength") == 0
        if label is not None:
            best, tied = _labelled(label, candidates)
        yield JudgedRow(
            id=str(row["id"]),
            votes=criteria_votes(views, row["criteria"]) if row.get("criteria") else recorded_votes(views),
            candidates=candidates,
            label=best,
            tied=tied,
            domain=row["domain"],
            tags=tuple(row["tags"]),
            programs=recorded_programs(_programs(views)),
            cost=Cost(
                prompt_tokens=row["prompt_tokens"],
                completion_tokens=row["completion_tokens"],
                seconds=row["seconds"],
                calls=row["programs"],
            ),
            extras=_decision(row, candidates),
        )


TIRJUDGE_RESULTS = TirjudgeResults()


def _labelled(label: Fields, candidates: int) -> tuple[int | None, bool]:
    """Return the best candidate of a row of labels, and whether the label is a tie."""
    try:
        best = read_choice(need(label, "label"), candidates)
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable(f"label is {error}", label) from None
    return (best[0] if len(best) == 1 else None), len(best) > 1


def _decision(row: Fields, candidates: int) -> dict[str, Any]:
    """Return the row's verdict as extras, also one that was left open; none if there is no comparison."""
    held = row.get("confidence")
    verdict = held.get("verdict") if isinstance(held, Mapping) else row.get("verdict")
    if candidates < 2:
        return {}
    try:
        return {DECISION: read_choice(verdict, candidates)}
    except ValueError:
        return {}


def _programs(views: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for view in views:
        yield from (passage for passage in view["segments"] if passage["kind"] == "program")
