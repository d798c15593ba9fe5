"""A teacher behind an endpoint judges training tasks, with its programs run in our sandbox."""

from __future__ import annotations

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.data import Data, trajectories
from tirjudge_training.distillation import Distillation
from tirjudge_training.stages.base import Run, Size, Stage
from tirjudge_training.teacher_config import TeacherConfig


class Teaching(Stage):
    """Writes down all that the teacher says; what is paid for once is never asked for again."""

    config: TeacherConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        draws = run.data.prompts(self.config.prompts, self.seed)
        return Distillation(
            folder, self.config, draws, run.data.environments, seed=self.seed, say=run.say
        ).ask()

    def size(self, data: Data) -> Size:
        count = trajectories(data, data.prompts(self.config.prompts, self.seed)) * self.config.samples
        return Size(f"{count:,} dialogues with {self.config.model}", dialogues=count)
