"""The stage that writes bare right answers for SFT without reasoning (RM-R1, section 4.3)."""

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
from tirjudge_environments.orders import letter
from tirjudge_training.data.base import Data
from tirjudge_training.distributed.shared_rows import SharedRows
from tirjudge_training.model_folder import load_tokenizer
from tirjudge_training.sft import Sample
from tirjudge_training.stages.base import SAMPLES, Run, Size, Stage

LETTER = "{letter}"


class AnswersConfig(BaseModel):
    """The answers that `method = "answers"` teaches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = LETTER
    """The whole answer in the form that the judge parses; `{letter}` is the letter of the right response."""
    prompts: int | None = Field(default=None, gt=0)
    """Number of training tasks to learn from; None is all of them."""


class Answering(Stage):
    """Writes the answer that names the label, for each view of a labelled task, in all processes."""

    config: AnswersConfig
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tokenizer = load_tokenizer(run.model(self.start))
        encoder = ChatEncoder(tokenizer, enable_thinking=run.enable_thinking)
        tasks = run.data.prompts(self.config.prompts, self.seed)
        rows = SharedRows(folder, SAMPLES, run.processes)
        for index, formatted in run.processes.share(rows.left(tasks)):
            judge = run.data.environments[formatted.format]
            samples = self._samples(judge, formatted.task, encoder, tokenizer.eos_token_id)
            rows.append({"index": index, "id": formatted.task.id, "kept": samples})
        rows.merge()
        unlabelled = sum(formatted.task.label is None for formatted in tasks)
        return {"prompts": len(tasks), "unlabelled": unlabelled}

    def size(self, data: Data) -> Size:
        return Size(f"{len(data.prompts(self.config.prompts, self.seed)):,} right answers")

    def describe(self, result: JsonObject) -> str:
        return f"the right answers to {result['prompts'] - result['unlabelled']:,} prompts"

    def _samples(self, judge: Environment, task: JudgeTask, encoder: Encoder, end: int) -> list[JsonObject]:
        if task.label is None:
            return []
        samples = []
        for view in judge.views(task):
            prompt = judge.prompt(task, view)
            answer = self._answer(judge, task, view, encoder.opening(prompt))
            samples.append(Sample.answer(encoder, prompt, answer, end))
        return [{"ids": sample.ids, "labels": sample.labels} for sample in samples]

    def _answer(self, judge: Environment, task: JudgeTask, view: View, opening: str) -> str:
        """Return the text behind the `opening` of the judge's turn.

        Raises RuntimeError if the judge would not parse the turn as the right verdict.
        """
        name = letter(view.order.index(task.label)) if task.label in view.order else ""
        text = self.config.text.replace(LETTER, name)
        verdict = judge.read(task, view, Completion(text=opening + text, finish=Finish.END))
        if not (isinstance(verdict, Verdict) and verdict.choice == task.label):
            raise RuntimeError(
                f"answers.text: the judge does not read {text!r} as the right answer to {task.id!r}: "
                "write it in the format of the judge"
            )
        return text
