"""The stage that renders a teacher's dialogues in the student's format and token ids."""

from __future__ import annotations

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_environments import ChatEncoder
from tirjudge_training.data.base import Data
from tirjudge_training.distillation.config import TeacherConfig
from tirjudge_training.distillation.lessons import Distillation
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage


class DialogueRendering(Stage):
    """Selects among the dialogues of a Teaching stage, whose seed it shares."""

    teacher: str
    """The name of that stage."""
    config: TeacherConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(run.model(self.start))
        draws = run.data.prompts(self.config.prompts, self.seed)
        # Rendering is cheap and deterministic: a resumed stage repeats it and writes only the missing rows.
        done = sum(1 for _ in folder.read(SAMPLES))
        kept = 0
        with RunFolder(run.path / self.teacher) as dialogues:
            lessons = Distillation(
                dialogues, self.config, draws, run.data.environments, seed=self.seed, say=run.say
            )
            encoder = ChatEncoder(tokenizer, enable_thinking=run.enable_thinking)
            for row in lessons.rows(encoder, tokenizer.eos_token_id):
                kept += len(row["kept"])
                if row["index"] >= done:
                    folder.append(SAMPLES, row)
        return {"prompts": len(draws), "samples": kept}

    def size(self, data: Data) -> Size:
        return Size(f"what {self.teacher} got right, in the student's form")

    def describe(self, result: JsonObject) -> str:
        return f"{result['samples']:,} samples from the dialogues of {self.config.model}"
