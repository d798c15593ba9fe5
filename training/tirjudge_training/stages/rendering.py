"""A teacher's dialogues as the student learns from them: in its own form, and as its own token ids."""

from __future__ import annotations

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_environments import ChatEncoder
from tirjudge_training.data import Data
from tirjudge_training.distillation import Distillation
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage
from tirjudge_training.teacher_config import TeacherConfig


class Rendering(Stage):
    """Chooses from what a Teaching stage, whose seed it shares, wrote down."""

    teacher: str
    """That stage."""
    start: str | None
    """The student."""
    config: TeacherConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(run.model(self.start))
        draws = run.data.prompts(self.config.prompts, self.seed)
        done = sum(1 for _ in folder.read(SAMPLES))
        kept = 0
        with RunFolder(run.path / self.teacher) as dialogues:
            lessons = Distillation(
                dialogues, self.config, draws, run.data.environments, seed=self.seed, say=run.say
            )
            for row in lessons.rows(ChatEncoder(tokenizer), tokenizer.eos_token_id):
                kept += len(row["kept"])
                if row["index"] >= done:
                    folder.append(SAMPLES, row)
        return {"prompts": len(draws), "samples": kept}

    def size(self, data: Data) -> Size:
        return Size(f"what {self.teacher} got right, in the student's form")
