"""Scoring and selection of teacher dialogues: each is converted to the student's format and scored there."""

from __future__ import annotations

from collections.abc import Mapping

from tirjudge_environments import Environment, Episode, Reward, StopReason, Trajectory, View
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.distillation.replay import convert_dialogue
from tirjudge_training.rl.dynamic_sampling import FormattedTask

PromptKey = tuple[str, str, str]
"""Format, task id and view name of a prompt."""


class TrajectoryFilter:
    """Converts and scores a teacher's dialogues, and selects the best ones.

    Dialogues may be added in any order; the result of `best` does not depend on it.
    """

    def __init__(self, environments: Mapping[str, Environment], config: TeacherConfig) -> None:
        """`environments` are the student's."""
        self._environments, self._config = environments, config
        self._converted: dict[tuple[str, str], dict[int, dict[str, Trajectory]]] = {}
        """Converted dialogues by (format, task id), sample number, and view name."""
        self._right: dict[PromptKey, list[Trajectory]] = {}
        self.unfit = 0
        """Dialogues that cannot be converted to the student's format."""
        self.corrected = 0
        """Dialogues with the full reward that the corrector wrote."""

    async def add(self, formatted: FormattedTask, trajectory: Trajectory) -> None:
        """Add a dialogue; it is scored once its sample has all views, since some rewards link them."""
        converted = await self._convert(formatted, trajectory)
        samples = self._converted.setdefault((formatted.format, formatted.task.id), {})
        views = samples.setdefault(trajectory.sample, {})
        views[trajectory.view.name] = converted
        for name in self._right_views(formatted, views):
            self._right.setdefault((formatted.format, formatted.task.id, name), []).append(views[name])

    async def correct(self, formatted: FormattedTask, trajectory: Trajectory) -> None:
        """Add a corrected dialogue, which is scored in place of the one that it corrects."""
        converted = await self._convert(formatted, trajectory)
        before = self._converted[formatted.format, formatted.task.id][trajectory.sample]
        name = trajectory.view.name
        if name in self._right_views(formatted, {**before, name: converted}):
            self._right.setdefault((formatted.format, formatted.task.id, name), []).append(converted)
            self.corrected += 1

    def wrong(self, formatted: FormattedTask, view: View) -> Trajectory | None:
        """Return a prompt's first dialogue to correct; None if one has the full reward or all are empty."""
        if self._right.get((formatted.format, formatted.task.id, view.name)):
            return None
        samples = sorted(self._converted.get((formatted.format, formatted.task.id), {}).items())
        dialogues = (sample[view.name] for _, sample in samples if view.name in sample)
        return next((dialogue for dialogue in dialogues if written(dialogue).strip()), None)

    def best(self, formatted: FormattedTask, view: View) -> list[Trajectory]:
        """Return the dialogues of a prompt to keep, the preferred one first."""
        right = self._right.get((formatted.format, formatted.task.id, view.name), [])

        def cost(trajectory: Trajectory) -> tuple[int, int, int]:
            length, calls = len(written(trajectory)), len(trajectory.calls)
            costs = (length, calls) if self._config.keep == "shortest" else (calls, length)
            return (*costs, trajectory.sample)  # the sample number makes the order unique

        return sorted(right, key=cost)[: self._config.per_prompt]

    @property
    def prompts(self) -> int:
        """The number of prompts with a dialogue of the full reward."""
        return len(self._right)

    async def _convert(self, formatted: FormattedTask, trajectory: Trajectory) -> Trajectory:
        environment = self._environments[formatted.format]
        converted = await convert_dialogue(
            trajectory, environment, formatted.task, reasoning=self._config.reasoning
        )
        # The replay marks a changed program as a sandbox failure, which is never scored.
        self.unfit += converted.stop is StopReason.SANDBOX_DOWN
        return converted

    def _right_views(self, formatted: FormattedTask, dialogues: Mapping[str, Trajectory]) -> list[str]:
        """Return the names of a sample's views with the full reward; none before all views are present."""
        environment = self._environments[formatted.format]
        views = environment.views(formatted.task)
        if len(dialogues) < len(views):
            return []
        sample = next(iter(dialogues.values())).sample
        episode = Episode(formatted.task, sample, tuple(dialogues[view.name] for view in views))
        # Scored without answers of a meta-judge.
        (scores,) = environment.score([episode], {})
        return [
            view.name
            for view, score in zip(views, scores, strict=True)
            if isinstance(score, Reward) and score.total >= self._config.reward
        ]


def written(trajectory: Trajectory) -> str:
    """Return everything after the prompt, program outputs included."""
    return "".join(segment.text for segment in trajectory.segments)
