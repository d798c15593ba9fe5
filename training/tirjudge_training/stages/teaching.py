"""The stage in which a teacher behind an endpoint judges training tasks, running programs in the sandbox."""

from __future__ import annotations

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.distillation.lessons import Distillation, teacher_environment
from tirjudge_training.stages.base import Run, Size, Stage


class TeacherSampling(Stage):
    """Stores every dialogue with the teacher, so that no request is paid for twice."""

    config: TeacherConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        draws = run.data.prompts(self.config.prompts, self.seed)
        return Distillation(
            folder, self.config, draws, run.data.environments, seed=self.seed, say=run.say
        ).ask()

    def size(self, data: Data) -> Size:
        count = trajectories(data, data.prompts(self.config.prompts, self.seed)) * self.config.samples
        return Size(f"{count:,} dialogues with {self.config.model}", dialogues=count)

    def check(self, data: Data) -> None:
        """Raise ValueError if a judge has no prompts for this family of teachers."""
        tiers = {self.config.tier, *([self.config.corrector.tier] if self.config.corrector else [])}
        for environment in data.environments.values():
            for tier in tiers:
                try:
                    teacher_environment(environment, self.config, tier)
                except ValueError as error:
                    raise ValueError(f"teacher.family: {error}") from None

    def describe(self, result: JsonObject) -> str:
        return f"{result['dialogues']:,} dialogues with {self.config.model}"
