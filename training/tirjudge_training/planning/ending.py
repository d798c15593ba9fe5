"""The expected end of a run, from the plan's seconds and the time that its finished stages took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tirjudge.console_text import span
from tirjudge_training.data.base import Data
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.planning.cost import stage_seconds
from tirjudge_training.planning.plan import shape_of
from tirjudge_training.recipe import Recipe


class ExpectedEnd:
    """Tells at the start of each stage when the whole run is expected to end.

    The plan's rates are those of a machine that the recipe assumes. They are therefore only used for the
    ratio of the stages to each other: a stage that took twice its planned time doubles the rest.
    """

    def __init__(
        self,
        planned: Mapping[str, float],
        *,
        elapsed: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`planned` maps every stage, in order, to its planned seconds; 0 for all is an unknown plan."""
        self._planned = dict(planned)
        self._elapsed, self._now = elapsed, now
        self._left = list(self._planned)
        self._began = 0.0
        self._measured = self._assumed = 0.0

    def begins(self, stage: str) -> str:
        """Return a line about a stage that begins: its number, and the expected end if one was timed."""
        self._began = self._elapsed()
        names = list(self._planned)
        line = f"stage {names.index(stage) + 1} of {len(names)}"
        left = sum(self._planned[name] for name in self._left)
        if not self._assumed or not left:
            return line
        seconds = left * self._measured / self._assumed
        at = datetime.fromtimestamp(self._now() + seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{line}; the run is expected to end in {span(seconds, seconds)}, at {at}"

    def ends(self, stage: str, *, timed: bool) -> None:
        """Note that a stage is done; `timed` if this process did all of its work."""
        self._left.remove(stage)
        if timed and self._planned[stage]:
            self._measured += self._elapsed() - self._began
            self._assumed += self._planned[stage]


def expected_end(recipe: Recipe, pipeline: Pipeline, data: Data) -> ExpectedEnd:
    """Return the expected end of a run that begins now."""
    shape = shape_of(recipe)
    seconds = (
        sum(stage_seconds(recipe.rates, stage, stage.size(data), shape.parameters)) / 2
        if shape is not None
        else 0.0
        for stage in pipeline.stages
    )
    return ExpectedEnd(dict(zip((stage.name for stage in pipeline.stages), seconds, strict=True)))
