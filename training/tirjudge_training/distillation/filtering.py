"""Scoring and selection of teacher dialogues: each is converted to the student's format and scored there."""

from __future__ import annotations

from collections.abc import Mapping

from tirjudge_environments import Environment, Episode, Reward, StopReason, Trajectory, View
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.distillation.replay import convert_dialogue
from tirjudge_training.rl.dynamic_sampling import FormattedTask

Prompt = tuple[str, str, str]
"""Format, task id and view name of a prompt."""


class TrajectoryFilter:
    """Accepts dialogues in any order; the result of `best` does not depend on it."""

    def __init__(self, environments: Mapping[str, Environment], config: TeacherConfig) -> None:
        """`environments` are the student's."""
        self._environments, self._config = environments, config
        self._forms: dict[tuple[str, str], dict[int, dict[str, Trajectory]]] = {}
        """Converted dialogues by (format, task id), sample number, and view name."""
        self._right: dict[Prompt, list[Trajectory]] = {}
        self.unfit = 0
        """Dialogues that cannot be converted to the student's format."""
        self.corrected = 0
        """Dialogues with the full reward that the corrector wrote."""

    async def add(self, draw: FormattedTask, trajectory: Trajectory) -> None:
        """Add a dialogue; it is scored once its sample has all views, since some rewards link them."""
        form = await self._form(draw, trajectory)
        samples = self._forms.setdefault((draw.format, draw.task.id), {})
        forms = samples.setdefault(trajectory.sample, {})
        forms[trajectory.view.name] = form
        for name in self._right_views(draw, forms):
            self._right.setdefault((draw.format, draw.task.id, name), []).append(forms[name])

    async def correct(self, draw: FormattedTask, trajectory: Trajectory) -> None:
        """Add a corrected dialogue, which is scored in place of the one that it corrects."""
        form = await self._form(draw, trajectory)
        before = self._forms[draw.format, draw.task.id][trajectory.sample]
        name = trajectory.view.name
        if name in self._right_views(draw, {**before, name: form}):
            self._right.setdefault((draw.format, draw.task.id, name), []).append(form)
            self.corrected += 1

    def wrong(self, draw: FormattedTask, view: View) -> Trajectory | None:
        """Return a prompt's first dialogue to correct; None if one has the full reward or all are empty."""
        if self._right.get((draw.format, draw.task.id, view.name)):
            return None
        samples = sorted(self._forms.get((draw.format, draw.task.id), {}).items())
        forms = (sample.get(view.name) for _, sample in samples)
        return next((form for form in forms if form is not None and written(form).strip()), None)

    def best(self, draw: FormattedTask, view: View) -> list[Trajectory]:
        """Return the dialogues of a prompt to keep, the preferred one first."""
        right = self._right.get((draw.format, draw.task.id, view.name), [])

        def cost(trajectory: Trajectory) -> tuple[int, int, int]:
            length, calls = len(written(trajectory)), len(trajectory.calls)
            costs = (length, calls) if self._config.keep == "shortest" else (calls, length)
            return (*costs, trajectory.sample)  # the sample number makes the order unique

        return sorted(right, key=cost)[: self._config.per_prompt]

    @property
    def prompts(self) -> int:
        """The number of prompts with a dialogue of the full reward."""
        return len(self._right)

    async def _form(self, draw: FormattedTask, trajectory: Trajectory) -> Trajectory:
        environment = self._environments[draw.format]
        form = await convert_dialogue(trajectory, environment, draw.task, reasoning=self._config.reasoning)
        self.unfit += form.stop is StopReason.SANDBOX_DOWN
        return form

    def _right_views(self, draw: FormattedTask, forms: Mapping[str, Trajectory]) -> list[str]:
        """Return the names of the views with the full reward; none before all views are present."""
        environment = self._environments[draw.format]
        views = environment.views(draw.task)
        if len(forms) < len(views):
            return []
        sample = next(iter(forms.values())).sample
        episode = Episode(draw.task, sample, tuple(forms[view.name] for view in views))
        (scores,) = environment.score([episode], {})
        return [
            view.name
            for view, score in zip(views, scores, strict=True)
            if isinstance(score, Reward) and score.total >= self._config.reward
        ]


def written(trajectory: Trajectory) -> str:
    """Return everything after the prompt, program outputs included."""
    return "".join(segment.text for segment in trajectory.segments)
