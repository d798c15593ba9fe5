"""Episodes of a training run, from the file `episodes.jsonl` in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tirjudge.evaluation.base import Cost, Index, JudgedRow
from tirjudge.evaluation.stored_outputs.base import Fields
from tirjudge.evaluation.stored_outputs.recorded_views import (
    Count,
    ProgramShape,
    ViewShape,
    candidates_shown,
    recorded_programs,
    recorded_votes,
)


class _Trajectory(ViewShape):
    programs: list[ProgramShape]
    prompt_tokens: Count
    completion_tokens: Count
    seconds: Count


class _Episode(BaseModel):
    model_config = ConfigDict(strict=True)

    label: Index | None
    domain: str
    trajectories: Annotated[list[_Trajectory], Field(min_length=1)]


class Episodes:
    """Each line, one sample of one task at one step, is a row."""

    name = "episodes"
    about = "run folders of `tirjudge train`: episodes.jsonl"
    benchmark = ""
    protocols = ("errors", "cost", "tir")
    shape = TypeAdapter(_Episode)

    def recognises(self, row: Fields) -> bool:
        return "trajectories" in row and "sample" in row

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        views = row["trajectories"]
        programs = [program for view in views for program in view["programs"]]
        yield JudgedRow(
            id=default_id,
            votes=recorded_votes([{**view, "sample": 0} for view in views]),
            candidates=candidates_shown(views),
            label=row["label"],
            domain=row["domain"],
            programs=recorded_programs(programs),
            cost=Cost(
                prompt_tokens=sum(view["prompt_tokens"] for view in views),
                completion_tokens=sum(view["completion_tokens"] for view in views),
                seconds=sum(view["seconds"] for view in views),
                calls=len(programs),
            ),
        )


EPISODES = Episodes()
