"""The right answers and nothing else, for supervised training without reasoning (RM-R1, section 4.3)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_environments import (
    ChatEncoder,
    Completion,
    Encoder,
    Environment,
    Finish,
    JudgeTask,
    Verdict,
    View,
)
from tirjudge_environments.letters import letter
from tirjudge_training.data import Data
from tirjudge_training.samples import Sample
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage

LETTER = "{letter}"


class AnswersConfig(BaseModel):
    """What is learned of each training task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = LETTER
    """The whole answer, in the form that the judge is read in; `{letter}` is the right response's."""
    prompts: int | None = Field(default=None, gt=0)
    """Training tasks that are learned from; None is all of them."""


class Answering(Stage):
    """Writes, for each view of a labelled task, the answer that names its label."""

    start: str | None
    config: AnswersConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(run.model(self.start))
        encoder = ChatEncoder(tokenizer)
        draws = run.data.prompts(self.config.prompts, self.seed)
        done = sum(1 for _ in folder.read(SAMPLES))
        unlabelled = 0
        for index, draw in enumerate(draws):
            unlabelled += draw.task.label is None
            if index >= done:
                judge = run.data.environments[draw.format]
                kept = self._samples(judge, draw.task, encoder, tokenizer.eos_token_id)
                folder.append(SAMPLES, {"index": index, "id": draw.task.id, "kept": kept})
        return {"prompts": len(draws), "unlabelled": unlabelled}

    def size(self, data: Data) -> Size:
        return Size(f"{len(data.prompts(self.config.prompts, self.seed)):,} right answers")

    def _samples(self, judge: Environment, task: JudgeTask, encoder: Encoder, end: int) -> list[JsonObject]:
        if task.label is None:
            return []
        samples = [
            Sample.answer(encoder, judge.prompt(task, view), self._answer(judge, task, view), end)
            for view in judge.views(task)
        ]
        return [{"ids": sample.ids, "labels": sample.labels} for sample in samples]

    def _answer(self, judge: Environment, task: JudgeTask, view: View) -> str:
        """Raises RuntimeError where the judge would not read it as the right one."""
        name = letter(view.order.index(task.label)) if task.label in view.order else ""
        text = self.config.text.replace(LETTER, name)
        read = judge.read(task, view, Completion(text=text, finish=Finish.END))
        if not (isinstance(read, Verdict) and read.choice == task.label):
            raise RuntimeError(
                f"answers.text: the judge does not read {text!r} as the right answer to {task.id!r}: "
                "write it in the judge's own form"
            )
        return text
