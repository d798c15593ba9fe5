"""The two stages of distillation: sample a teacher's dialogues, and render the best ones for the student."""

from __future__ import annotations

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import ChatEncoder
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distillation.best_dialogues import Distillation, teacher_environment
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.model_folder import load_tokenizer
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage


class TeacherSampling(Stage):
    """Has a teacher behind an endpoint judge training tasks, and stores every dialogue.

    Programs run in the sandbox. No request is paid for twice, whenever the run is interrupted.
    """

    config: TeacherConfig
    asks_teacher = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.prompts(self.config.prompts, self.seed)
        return Distillation(
            folder, self.config, tasks, run.data.environments, seed=self.seed, say=run.say
        ).ask()

    def size(self, data: Data) -> Size:
        count = trajectories(data, data.prompts(self.config.prompts, self.seed)) * self.config.samples
        kept = self.config.kept
        until = "" if kept is None else f", until {kept:,} have the full reward"
        return Size(f"{'at most ' * bool(until)}{count:,} dialogues with {self.config.model}{until}")

    def check(self, data: Data) -> None:
        """Raise ValueError if a judge has no prompts for this family of teachers."""
        # The corrector may use another tier, and with it another protocol of the judge.
        tiers = {self.config.tier, *([self.config.corrector.tier] if self.config.corrector else [])}
        for environment in data.environments.values():
            for tier in tiers:
                try:
                    teacher_environment(environment, self.config, tier)
                except ValueError as error:
                    raise ValueError(f"teacher.family: {error}") from None


class DialogueRendering(Stage):
    """Renders a teacher's best dialogues in the student's format and token ids.

    The seed equals the TeacherSampling stage's seed, so both stages choose the same tasks.
    """

    teacher: str
    """The name of the TeacherSampling stage."""
    config: TeacherConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tokenizer = load_tokenizer(run.model(self.start))
        tasks = run.data.prompts(self.config.prompts, self.seed)
        # Rendering is cheap and deterministic: a resumed stage repeats it and writes only the missing rows.
        done = sum(1 for _ in folder.read(SAMPLES))
        kept = 0
        with RunFolder(run.path / self.teacher) as dialogues:
            distillation = Distillation(
                dialogues, self.config, tasks, run.data.environments, seed=self.seed, say=run.say
            )
            encoder = ChatEncoder(tokenizer, enable_thinking=run.enable_thinking)
            for row in distillation.rows(encoder, tokenizer.eos_token_id):
                kept += len(row["kept"])
                if row["index"] >= done:
                    folder.append(SAMPLES, row)
        return {"prompts": len(tasks), "samples": kept}

    def size(self, data: Data) -> Size:
        return Size(f"right dialogues of the stage {self.teacher}, in the student's format")
